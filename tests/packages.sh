#!/bin/sh
# Installs the Debian packages that the tests use, where that is possible: as root, on Debian. Elsewhere the tests that
# need them are skipped, each with its reason.
set -eu
cd "$(dirname "$0")/.."

# axe-core judges the accessibility of the status page. npm fetches its package, which is compared with its digest.
axe=4.14.1
digest=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5
if [ ! -f ".cache/axe-core-$axe/axe.min.js" ]; then
    if ! command -v npm >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends npm >/dev/null
    fi
    folder=$(mktemp -d)
    if npm pack --silent --pack-destination "$folder" "axe-core@$axe" >/dev/null &&
        echo "$digest  $folder/axe-core-$axe.tgz" | sha512sum --check --quiet; then
        mkdir -p ".cache/axe-core-$axe"
        tar -xzf "$folder/axe-core-$axe.tgz" -C ".cache/axe-core-$axe" --strip-components=1 package/axe.min.js
    else
        echo "not fetched: axe-core (the tests that need it are skipped)"
    fi
    rm -r "$folder"
fi

# systemd brings systemd-analyze, which judges the units; it becomes nobody's init by being installed.
wanted="chromium nats-server postgresql prometheus rabbitmq-server redis-server systemd zsh"
# Debian's kubectl is installed only where there is none yet; another one stays, and Debian's is unpacked beside the tests.
beside=.cache/kubectl-debian
unpack=""
if ! command -v kubectl >/dev/null 2>&1; then
    wanted="$wanted kubernetes-client"
elif ! dpkg-query -W -f='${Status}' kubernetes-client 2>/dev/null | grep -q 'install ok installed'; then
    [ -x "$beside/usr/bin/kubectl" ] || unpack=kubernetes-client
fi
missing=""
for package in $wanted; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -n "$missing$unpack" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed:$missing $unpack (the tests that need them are skipped; as root on Debian they would be installed)"
    exit 0
fi
echo "installing:$missing $unpack"
export DEBIAN_FRONTEND=noninteractive
# Packages that start a service when installed must not: the tests start their own, on loopback.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086  # a list of words
    apt-get install -qq -y --no-install-recommends $missing > /dev/null
fi
if [ -n "$unpack" ]; then
    mkdir -p "$beside"
    (
        cd "$beside"
        apt-get download -qq -o APT::Sandbox::User=root "$unpack"
        dpkg-deb -x "$unpack"_*.deb .
        rm -f ./*.deb
    )
fi
