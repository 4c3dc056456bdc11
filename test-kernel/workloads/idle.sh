# nothing: the machine sleeps for two seconds
sleep 2
