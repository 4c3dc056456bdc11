# page faults: memory mapped, touched page by page, shared by fork, written to, unmapped
touch-pages 40
