#!/bin/sh
# Runs tests on a machine that has cgroup v2 alone: a small virtual one with Debian's own kernel, emulated, so
# that it needs neither KVM nor a reboot. Root, on Debian:
#
#     tests/pure_v2_machine.sh [PYTEST ARGUMENTS…]        default: the cgroup and process tree tests
#
# Leaves pytest's log and a fresh recording (see record_kernel_fixture.py) in output/pure-v2/. Takes minutes.
set -eu
repository=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$repository/.venv/bin/python}
output=$repository/output/pure-v2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- tests/integration/test_cgroup_groups.py tests/integration/test_cgroup_probe.py \
    tests/integration/test_process_tree.py tests/unit/probes

apt-get install -y -qq --no-install-recommends qemu-system-x86 busybox-static e2fsprogs >/dev/null
kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ { print $2; exit }')
(cd "$work" && apt-get download -qq "$kernel" && dpkg -x linux-image-*.deb kernel)

# The root file system: busybox, this Python with its libraries, and the working tree.
root=$work/root
mkdir -p "$root/bin" "$root/lib64" "$root/lib" "$root/tmp" "$root/proc" "$root/sys" "$root/dev" \
    "$root/var/tmp" "$root/etc" "$root/repository" "$root/output" "$root/packages"
cp /usr/bin/busybox "$root/bin/"
for name in sh cat ls sleep true setsid tail mkdir; do ln -s busybox "$root/bin/$name"; done
base=$("$python" -c 'import sys; print(sys.base_prefix)')
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
tar -C / -cf - --exclude='*/site-packages/*' --exclude='*/test/*' --exclude='*/tkinter*' --exclude='*_tkinter*' \
    "${base#/}/bin" "${base#/}/lib" | tar -C "$root" -xf -
for name in msgspec pytest _pytest pluggy iniconfig packaging pygments hypothesis sortedcontainers py.py \
    _hypothesis_ftz_detector.py _hypothesis_globals.py _hypothesis_pytestplugin.py; do
    cp -a "$packages/$name" "$root/packages/"
done
cp -a "$repository/src" "$repository/tests" "$repository/pyproject.toml" "$root/repository/"
interpreter=$(readlink -f "$python")
find "$root$base" "$root/packages" -name '*.so*' -type f | while read -r file; do ldd "$file" 2>/dev/null || true; done |
    { cat; ldd "$interpreter"; } | awk '/=> \// { print $3 } /ld-linux/ { print $1 }' | sort -u |
    while read -r library; do
        case $library in
            */ld-linux*) cp -L "$library" "$root/lib64/" ;;
            "$base"/*) ;;
            *) cp -L "$library" "$root/lib/" ;;
        esac
    done
{
    echo "export PATH=/bin HOME=/tmp LD_LIBRARY_PATH=/lib PYTHONPATH=/repository/src:/packages PYTHONDONTWRITEBYTECODE=1"
    echo "cd /repository"
    echo "$interpreter -m pytest -q -p no:cacheprovider $* > /output/pytest.log 2>&1; echo \$? > /output/code"
    echo "tail -n 20 /output/pytest.log"
    echo "$interpreter tests/record_kernel_fixture.py /output/recording /var/tmp"
} > "$root/run.sh"
truncate -s 2G "$work/disk"
mkfs.ext4 -q -F -d "$root" "$work/disk"

# The start: just enough to find the disk and mount cgroup v2.
start=$work/start
mkdir -p "$start/bin" "$start/modules" "$start/proc" "$start/sys" "$start/dev" "$start/new"
cp /usr/bin/busybox "$start/bin/"
for module in virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk; do
    find "$work/kernel" -name "$module.ko" -exec cp {} "$start/modules/" \;
done
cat > "$start/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for m in virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk; do
    [ -f /modules/$m.ko ] && $b insmod /modules/$m.ko
done
until [ -b /dev/vda ]; do $b sleep 0.1; done
$b mount -t ext4 /dev/vda /new
for d in proc sys dev; do $b mount --move /$d /new/$d; done
$b mkdir -p /new/dev/pts; $b mount -t devpts devpts /new/dev/pts
$b mount -t cgroup2 cgroup2 /new/sys/fs/cgroup
$b chroot /new /bin/sh /run.sh
$b sync
$b reboot -f
INIT
chmod +x "$start/init"
(cd "$start" && find . | busybox cpio -o -H newc 2>/dev/null | gzip) > "$work/start.gz"

timeout 1200 qemu-system-x86_64 -accel tcg,thread=multi -cpu Nehalem -m 3072 -smp 2 -no-reboot -nographic \
    -kernel "$work"/kernel/boot/vmlinuz-* -initrd "$work/start.gz" -append "console=ttyS0 quiet psi=1 panic=-1" \
    -drive "file=$work/disk,format=raw,if=virtio"
rm -rf "$output"
mkdir -p "$output"
debugfs -R "rdump /output $work" "$work/disk" 2>/dev/null
cp -a "$work/output/." "$output/"
exit "$(cat "$output/code")"
