#!/bin/bash
# Is the first process of a machine whose files are in $1, in a mount and a PID namespace of its own, and runs the rest
# of its arguments there. Not by chroot: who is in one gets no user namespace.
set -e
mount --bind "$1" "$1"
cd "$1"
shift
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs -o mode=755 dev dev
for name in null zero full random urandom tty; do
    touch "dev/$name"
    mount --bind "/dev/$name" "dev/$name"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for number in 0,stdin 1,stdout 2,stderr; do ln -s "/proc/self/fd/${number%,*}" "dev/${number#*,}"; done
pivot_root . .
umount --lazy .
cd /
hash -r
status=0
"$@" || status=$?  # no exec: this process waits for all whose parents have ended
exit $status
