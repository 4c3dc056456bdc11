# dd, a file copy, process creation, page faults, heap, pages and switches, on several CPUs at once
sh /workloads/dd.sh &
sh /workloads/copy.sh &
sh /workloads/processes.sh &
sh /workloads/faults.sh &
sh /workloads/kernel.sh &
wait
