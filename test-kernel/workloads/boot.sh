# nothing: the machine boots and is powered off (cargo xtask profile --boot)
