# a hundred and twenty processes, one after the other: fork, exec, wait
i=0
while [ $i -lt 120 ]; do
    /bin/true
    i=$((i + 1))
done
