#!/bin/sh
# Installs the Debian packages that the tests use, where that is possible: as root, on Debian. Elsewhere the tests that
# need them are skipped, each with its reason.
set -eu

wanted="prometheus rabbitmq-server redis-server systemd"
missing=""
for package in $wanted; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed:$missing (the tests that need them are skipped; as root on Debian they would be installed)"
    exit 0
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# Packages that start a service when installed must not: the tests start their own, on loopback.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq
# shellcheck disable=SC2086  # a list of words
apt-get install -qq -y --no-install-recommends $missing > /dev/null
