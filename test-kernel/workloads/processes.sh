# two hundred processes, one after the other: fork, exec, wait
i=0
while [ $i -lt 200 ]; do
    /bin/true
    i=$((i + 1))
done
