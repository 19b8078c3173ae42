#!/bin/sh
# Enrolls this machine as a node of a GPUaaS control plane, or removes the agent again.
#
#   curl -fsSk --pinnedpubkey 'sha256//…' https://CONTROL-PLANE/install.sh | GPUAAS_ENROLL=gpuaas1.… sh
#                                          as `gpuaas node register` prints it; a repetition changes nothing, or upgrades the agent
#   sh install.sh --uninstall [--force]    removes the agent and its state; --force also where a workload still runs
#   DESTDIR=/image GPUAAS_ENROLL=… sh install.sh
#                                          installs the agent's files in an image; starts nothing and enrolls nothing
#
# Nothing is trusted on first use: the enrollment string pins the digest of the control plane's authority, every download comes from a
# server that this authority certified, and packages are verified by their digests. No secret is in an argument or in the environment of
# another program. The last line closes the brace of the first: a truncated download runs nothing.
{
set -fu
LC_ALL=C
DEBIAN_FRONTEND=noninteractive
export LC_ALL DEBIAN_FRONTEND
umask 022
# Unset first: an exported variable of one of these names would be visible to every other program.
unset string json body check
string=${GPUAAS_ENROLL-}
unset GPUAAS_ENROLL

root=${DESTDIR-}
root=${root%/}
unit=gpuaas-agent.service
state=$root/var/lib/gpuaas-agent
# Target directories of an archive; packages contain their own paths.
programs=$root/usr/local/bin
share=$root/usr/local/share/gpuaas-agent
units=$root/etc/systemd/system
# Maximum difference between the two clocks, in seconds; the control plane refuses more.
skew_max=300
# Maximum response sizes in KiB: of a server that is not authenticated yet, and of a package.
answer_kib_max=64
package_kib_max=524288
work=
# The control plane's address, once the enrollment string is read.
url=

say() { printf '%s\n' "$*"; }

has() { command -v "$1" >/dev/null 2>&1; }

# refuse STATUS CODE WHAT NEXT
refuse() {
    printf 'error: %s (%s)\n  %s\n  see %s/docs/errors/%s · exit status %s\n' "$3" "$2" "$4" "${url:-https://CONTROL-PLANE}" "$2" "$1" >&2
    exit "$1"
}

# Files that are removed at every exit: a download in progress, and the enrollment string.
half=

clean_up() {
    [ -z "$half" ] || rm -f "$half"
    [ -z "$work" ] || rm -rf "$work"
}

# Sets work to a private temporary directory, which is removed at exit.
make_work() {
    made=$(mktemp -d "${TMPDIR:-/tmp}/gpuaas-install.XXXXXX" 2>&1) || case $made in
        *'No space left on device'*) refuse 7 disk_full "cannot create a temporary folder: $made" 'free space there, or set TMPDIR to a directory with free space' ;;
        *) refuse 4 install_folder_read_only "cannot create a temporary folder: $made" 'set TMPDIR to a writable folder' ;;
    esac
    work=$made
    # Ignores the machine's own authorities: curl reads their directory even with --cacert.
    mkdir "$work/none"
}

# ---------------------------------------------------------------------------------------------------------------- what must be here

must_be_root() {
    [ -z "$root" ] || return 0
    [ "$(id -u)" = 0 ] || refuse 6 install_not_root 'only root can install or remove the agent' \
        'run it as root: … | GPUAAS_ENROLL=… sudo --preserve-env=GPUAAS_ENROLL sh'
}

must_have_systemd() {
    [ -z "$root" ] || return 0
    { [ -d /run/systemd/system ] && has systemctl; } || refuse 4 install_no_systemd \
        'this machine was not booted with systemd, and the agent is a unit of systemd' \
        'use a machine that runs systemd: Debian 11, Ubuntu 22.04, RHEL 9 or newer'
}

# Checked before the enrollment string is used up for an agent that cannot start.
must_not_be_masked() {
    [ -z "$root" ] || return 0
    # Debian masks the unit of a removed package and unmasks it when the package is installed again.
    if [ -e /var/lib/systemd/deb-systemd-helper-masked/$unit ] &&
        [ "$(dpkg-query -W -f '${db:Status-Status}' gpuaas-agent 2>/dev/null)" != installed ]; then
        return 0
    fi
    case $(systemctl is-enabled $unit 2>/dev/null) in
        masked*) refuse 4 install_unit_masked "$unit is masked, so it cannot start" \
            "unmask it (systemctl unmask $unit), then run the same command again" ;;
    esac
}

must_have_tools() {
    if ! has curl; then
        hint='install curl, then run the same command again'
        ! has wget || hint="$hint; wget is installed, but cannot pin a key"
        refuse 4 install_tool_missing 'curl is missing' "$hint"
    fi
    for tool in sha256sum base64 tar gzip mktemp sed tr cut; do
        has "$tool" || refuse 4 install_tool_missing "$tool is missing" 'install it, then run the same command again'
    done
}

# Allows one installation at a time. The lock is on an existing directory, so it leaves nothing behind, and it ends with its process. /root comes
# first: only root can open it, so no other user can hold the lock.
take_turn() {
    has flock || refuse 4 install_tool_missing 'flock is missing' 'install util-linux, then run the same command again'
    [ -z "$root" ] || mkdir -p "$root" 2>/dev/null
    for folder in "${root:-/root}" /run; do
        (exec 9<"$folder") 2>/dev/null || continue
        exec 9<"$folder"
        flock -n 9 2>/dev/null
        # Some file systems have no locks.
        case $? in
            0) return ;;
            1) refuse 5 install_busy 'another installation runs on this machine' 'wait for its end, then run the same command again' ;;
        esac
    done
}

# ------------------------------------------------------------------------------------------------------------- the enrollment string

damaged() {
    refuse 4 install_string_damaged 'the enrollment string is damaged: a character was lost or changed' \
        'copy the complete line that gpuaas node register NODE printed, or print a new one: gpuaas node enroll NODE'
}

version_unknown() {
    refuse 4 install_string_version 'this script does not support the format of the enrollment string' \
        'fetch the script from the control plane that issued the string'
}

# Prints a text field of the string.
field() { printf '%s' "$json" | sed -n 's/.*"'"$1"'":"\([^"]*\)".*/\1/p'; }

# Sets string, url, ca_sha256 and the id of the node that the string is for.
read_string() {
    string=$(printf '%s' "$string" | tr -d ' \t\r\n')
    case $string in
        '') refuse 4 install_string_missing 'no enrollment string was given' \
            'run the complete line that gpuaas node register NODE prints; it sets GPUAAS_ENROLL' ;;
        gpuaas1.*.*) ;;
        gpuaas1*) damaged ;;
        gpuaas*) version_unknown ;;
        *) refuse 4 install_string_unknown 'GPUAAS_ENROLL contains no enrollment string, which begins with gpuaas1.' \
            'run the complete line that gpuaas node register NODE prints' ;;
    esac
    check=${string##*.}
    body=${string#gpuaas1.}
    body=${body%.*}
    case $body in '' | *[!A-Za-z0-9_-]*) damaged ;; esac
    [ "$(printf '%s' "$body" | sha256sum | cut -c1-8)" = "$check" ] || damaged
    case $((${#body} % 4)) in
        0) padding= ;;
        2) padding='==' ;;
        3) padding='=' ;;
        *) damaged ;;
    esac
    json=$(printf '%s%s' "$body" "$padding" | tr '_-' '/+' | base64 -d 2>/dev/null) || damaged
    url=$(field url)
    url=${url%/}
    ca_sha256=$(field ca_sha256)
    node=$(field node)
    case $url in *[!A-Za-z0-9.:/_\[\]-]* | '' | https://) url= && version_unknown ;; https://*) ;; *) url= && version_unknown ;; esac
    case $ca_sha256 in *[!0-9a-f]*) version_unknown ;; esac
    [ ${#ca_sha256} = 64 ] || version_unknown
}

# ------------------------------------------------------------------------------------------------------------------- the control plane

# fetch PATH FILE KIB-MAX [OPTION…]: sets answered to the HTTP status. Connects directly, as the agent does, without curl's configuration files.
fetch() {
    path=$1 file=$2 kib_max=$3
    shift 3
    refused=0
    while ask_once "$@" && [ "$answered" = 429 ] && [ "$refused" -lt "$refused_max" ]; do
        # Too many machines download at the same time.
        refused=$((refused + 1))
        sleep 5
    done
    [ "$answered" = 200 ] || not_answered "$file"
}

# Retries for ten minutes, the longest time of one download.
refused_max=120

# ask_once [OPTION…]: requests $path once.
ask_once() {
    answered=$(
        exec 2>"$work/stderr"
        # Limits the response in half KiB, so that a server cannot fill the disk.
        # shellcheck disable=SC3045 # every sh of the supported systems has it
        ulimit -c 0
        ulimit -f $((kib_max * 2))
        curl -q --silent --show-error --globoff --proto '=https' --noproxy '*' --connect-timeout 10 --max-time 600 \
            --speed-limit 1 --speed-time 30 "$@" --dump-header "$work/headers" --output "$file" --write-out '%{http_code}' "$url$path"
        # No exec: curl would replace the shell, and the signal would end the script.
        exit $?
    ) || not_fetched $?
}

# The same, from a server that proves its identity with the pinned authority.
fetch_from_pinned() {
    is_pinned=yes
    fetch "$@" --cacert "$work/ca.pem" --capath "$work/none"
}

curl_error() { sed -n 's/^curl: ([0-9]*) //p' "$work/stderr" | tail -n 1; }

# not_fetched STATUS-OF-CURL
not_fetched() {
    error=$(curl_error)
    case $1 in 6 | 7 | 28) ask_proxy "$1" ;; esac
    again='then run the same command again'
    case $1 in
        6) refuse 7 install_name_unresolved "the control plane's name cannot be resolved: $error" \
            "check this machine's name resolution (/etc/resolv.conf, /etc/hosts), $again" ;;
        7) refuse 7 install_connection_refused "nothing accepts connections at $url: $error" \
            "check that the control plane runs there and that no firewall blocks this machine, $again" ;;
        28) refuse 8 install_timed_out "$url does not respond in time: $error" \
            "check that no firewall drops this machine's packets, $again" ;;
        35) refuse 7 install_tls_failed "the TLS handshake with $url failed: $error" \
            "check which program listens at that port, $again" ;;
        51 | 58 | 60 | 77 | 82 | 83 | 90 | 91) refuse 4 install_tls_untrusted \
            "the server at $url is not the control plane of this enrollment string: $error" \
            'check that no proxy between this machine and the control plane terminates TLS: agents refuse it' ;;
        18 | 52 | 55 | 56 | 92 | 95) refuse 7 install_connection_broken "the connection to $url was interrupted: $error" "run the same command again" ;;
        23) refuse 7 disk_full "a download cannot be written to $work: $error" "free space there, or set TMPDIR to a directory with free space, $again" ;;
        153) refuse 1 install_download_failed "the server at $url sends more than a control plane does" \
            "check that this is the control plane, $again" ;;
        *) refuse 1 install_download_failed "a download from $url failed: curl ended with $1: $error" "see man curl for $1, $again" ;;
    esac
}

# ask_proxy STATUS-OF-CURL: if the direct connection failed and a proxy is set, reports the proxy's answer. Returns if the proxy adds nothing.
ask_proxy() {
    proxy=${https_proxy:-${HTTPS_PROXY:-${all_proxy:-${ALL_PROXY:-${http_proxy:-}}}}}
    [ -n "$proxy" ] || return 0
    host=${url#https://}
    case $host in
        '['*) host=${host#?} host=${host%%]*} ;;
        *) host=${host%%[:/]*} ;;
    esac
    for exempt in $(printf '%s' "${no_proxy:-${NO_PROXY:-}}" | tr ',' ' '); do
        case $exempt:$host in '*':*) return 0 ;; esac
        case $host in "${exempt#.}" | *".${exempt#.}") return 0 ;; esac
    done
    # The proxy's URL can contain a password: curl reads it from a file, and messages show it without.
    shown=$(printf '%s' "$proxy" | sed 's#^\([a-z0-9]*://\)\{0,1\}.*@#\1#')
    answered=$(printf '%s' "$proxy" | sed 's#["\\]#\\&#g; s#.*#proxy = "&"#' | curl -q --silent --show-error --globoff --insecure --config - --connect-timeout 10 \
        --max-time 20 --output /dev/null --write-out '%{http_connect}' "$url/livez" 2>"$work/proxy-stderr")
    ended=$?
    case $ended:$answered in
        0:*) refuse 7 install_proxy_only "$url is reachable only through the proxy $shown, but agents use no proxy" \
            'let this machine reach the ports 7443 and 7444 of the control plane directly' ;;
        *:000 | *:200 | *:) ;;
        *) refuse 7 install_proxy_refused "$url is not reachable directly, and the proxy $shown answers $answered" \
            'let this machine reach the ports 7443 and 7444 of the control plane directly: agents use no proxy' ;;
    esac
    words=$(sed -n 's/^curl: ([0-9]*) //p' "$work/proxy-stderr" | tail -n 1)
    # curl repeats what it does not understand, including the password.
    case $words in *@*) words="curl ended with $ended" ;; esac
    case $ended in
        5 | 7 | 28 | 97) refuse 7 install_proxy_unreachable \
            "neither $url nor the proxy $shown is reachable: $words" \
            'let this machine reach the ports 7443 and 7444 of the control plane directly: agents use no proxy' ;;
    esac
}

# not_answered FILE: the server refused the request. Shows its text only if the server was authenticated as the control plane.
not_answered() {
    json=$(tr -d '\000-\037\177' <"$1" 2>/dev/null | cut -c1-4096)
    code=
    [ -z "$is_pinned" ] || code=$(field code)
    case $answered in 404) status=3 ;; 502 | 503 | 507) status=7 ;; 408 | 504) status=8 ;; *) status=1 ;; esac
    case $code in
        '' | *[!a-z_]*) refuse 1 install_download_failed "$url$path answered HTTP $answered" \
            'check that this is the control plane, then run the same command again' ;;
        *) refuse $status "$code" "$(field detail)" "$(field next)" ;;
    esac
}

# Prints the seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT`; nothing if it is not such a date.
epoch_of() {
    # shellcheck disable=SC2086 # splits into words on purpose
    set -- $1
    [ $# = 6 ] || return 0
    case $3 in
        Jan) month=1 ;; Feb) month=2 ;; Mar) month=3 ;; Apr) month=4 ;; May) month=5 ;; Jun) month=6 ;;
        Jul) month=7 ;; Aug) month=8 ;; Sep) month=9 ;; Oct) month=10 ;; Nov) month=11 ;; Dec) month=12 ;;
        *) return 0 ;;
    esac
    case $2:$4:$5 in [0-3][0-9]:[1-9][0-9][0-9][0-9]:[0-2][0-9]:[0-5][0-9]:[0-6][0-9]) ;; *) return 0 ;; esac
    hour=${5%%:*} second=${5##*:} minute=${5#*:}
    minute=${minute%:*}
    day=${2#0} hour=${hour#0} minute=${minute#0} second=${second#0}
    # Years begin in March, which simplifies leap days.
    year=$(($4 - (month <= 2)))
    of_year=$(((153 * ((month + 9) % 12) + 2) / 5 + day - 1))
    days=$((year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719468))
    echo $((days * 86400 + hour * 3600 + minute * 60 + second))
}

# With a wrong clock, certificates look expired or not yet valid: checked and reported before anything else.
clocks_must_agree() {
    theirs=$(epoch_of "$(sed -n 's/^[Dd]ate: *//p' "$work/headers" | tail -n 1 | tr -d '\r')")
    [ -n "$theirs" ] || return 0
    off=$(($(date +%s) - theirs)) way='ahead of'
    if [ $off -lt 0 ]; then off=$((-off)) way=behind; fi
    [ $off -le $skew_max ] || refuse 5 clock_skewed \
        "this machine's clock is $off s $way the control plane's, and at most $skew_max s are allowed" \
        "set this machine's clock, for example by NTP, then run the same command again"
}

# Leaves only the pinned authority in $work/ca.pem.
take_authority() {
    is_pinned=
    fetch "/install/authority.pem?sha256=$ca_sha256" "$work/claimed.pem" $answer_kib_max --insecure
    sed -n '/^-----BEGIN CERTIFICATE-----/,/^-----END CERTIFICATE-----/p' "$work/claimed.pem" | sed '/^-----/d' |
        base64 -d >"$work/ca.der" 2>/dev/null
    [ "$(sha256sum <"$work/ca.der" | cut -c1-64)" = "$ca_sha256" ] || refuse 4 install_authority_mismatch \
        "the server at $url is not the control plane that issued this enrollment string" \
        'print a new line there (gpuaas node enroll NODE); if the error remains, another server intercepts the connection'
    # Rewritten from the checked bytes: a PEM file can contain more than one certificate.
    {
        echo '-----BEGIN CERTIFICATE-----'
        base64 <"$work/ca.der"
        echo '-----END CERTIFICATE-----'
    } >"$work/ca.pem"
    clocks_must_agree
}

# ------------------------------------------------------------------------------------------------------------------------- the package

# Sets kind and arch. An agent installed from an archive, for example in an image, stays one: its unit would override the package's.
know_machine() {
    kind=archive
    if [ -z "$root" ] && ! { [ -f "$units/$unit" ] && [ -x "$programs/gpuaas-agent" ]; } && has dpkg && dpkg-query -W libc6 >/dev/null 2>&1; then
        kind=deb
        arch=$(dpkg --print-architecture)
        return 0
    fi
    machine=$(uname -m)
    case $machine in
        x86_64) arch=amd64 ;;
        aarch64) arch=arm64 ;;
        *) arch=$machine ;;
    esac
}

# Prints digest and name of the newest package in the list that matches a pattern.
listed() { sed -n "s/^\([0-9a-f]\{64\}\)  \($1\)\$/\1 \2/p" "$work/sums" | sort -V -k 2 | tail -n 1; }

# Sets package and its sha256.
choose_package() {
    fetch_from_pinned /install/packages/SHA256SUMS "$work/sums" $answer_kib_max
    case $arch in
        *[!a-z0-9_]* | '') found= ;;
        *)
            archive="gpuaas-agent-[A-Za-z0-9.+~-]*-linux-$arch\.tar\.gz"
            case $kind in
                deb) found=$(listed "gpuaas-agent_[A-Za-z0-9.+~-]*_$arch\.deb") ;;
                *) found=$(listed "$archive") ;;
            esac
            ;;
    esac
    if [ -z "$found" ]; then
        offered=$(sed -n -e 's/^[0-9a-f]*  gpuaas-agent_.*_\([a-z0-9]*\)\.deb$/\1/p' \
            -e 's/^[0-9a-f]*  gpuaas-agent-.*-linux-\([a-z0-9_]*\)\.tar\.gz$/\1/p' "$work/sums" | sort -u | tr '\n' ' ')
        refuse 4 install_architecture_unsupported "there is no agent ($kind) for this machine's architecture, $arch" \
            "the control plane has one for: ${offered:-none}"
    fi
    sha256=${found%% *}
    package=${found#* }
}

# Sets program. True if exactly this package is installed completely.
is_installed() {
    case $kind in deb) program=/usr/bin/gpuaas-agent ;; *) program=$programs/gpuaas-agent ;; esac
    [ "$(cat "$state/package" 2>/dev/null)" = "$sha256" ] && [ -x "$program" ] || return 1
    case $kind in
        deb)
            [ "$(dpkg-query -W -f '${db:Status-Status}' gpuaas-agent 2>/dev/null)" = installed ] &&
                { [ -f /lib/systemd/system/$unit ] || [ -f /usr/lib/systemd/system/$unit ]; }
            ;;
        *) [ -f "$units/$unit" ] ;;
    esac
}

# explain_failure WHAT: reports the last program's error. dpkg ends with a name, so its error line is taken instead.
explain_failure() {
    error=$(grep -e '^dpkg: error' -e ' depends on ' "$work/stderr" | head -n 2 | tr -s '\n ' ' ')
    error=${error:-$(grep -v '^ *$' "$work/stderr" | tail -n 1)}
    if grep -q 'No space left on device' "$work/stderr"; then
        refuse 7 disk_full "$1: $error" 'make room there, then run the same command again'
    elif grep -q -e 'Read-only file system' -e 'Permission denied' -e 'Operation not permitted' "$work/stderr"; then
        refuse 4 install_folder_read_only "$1: $error" 'make it writable, then run the same command again'
    elif grep -q -e 'locked by another process' -e 'unable to lock' "$work/stderr"; then
        refuse 5 install_busy "$1: $error" 'wait until the other package installation ends, then run the same command again'
    fi
    refuse 1 install_package_refused "$1: $error" 'fix the reported error, then run the same command again: it continues where it stopped'
}

# Reports a directory that cannot be written, or a program directory mounted noexec, before anything is changed.
must_take_files() {
    case $kind in deb) bin=/usr/bin ;; *) bin=$programs ;; esac
    for folder in "$bin" "$units" "$root/var/lib"; do
        probe=$folder/.gpuaas-install
        half=$probe
        # Uses cat: the shell's printf reports a full disk as "I/O error".
        { mkdir -p "$folder" && printf '#!/bin/sh\nexit 0\n' | cat >"$probe" && chmod 755 "$probe"; } 2>"$work/stderr" || {
            rm -f "$probe" 2>/dev/null
            explain_failure "$folder is not writable"
        }
        "$probe" >/dev/null 2>&1
        ran=$?
        rm -f "$probe"
        half=
        [ "$folder" != "$bin" ] || [ $ran = 0 ] || refuse 4 install_folder_noexec "programs cannot be executed in $folder" \
            'mount it without noexec, then run the same command again'
    done
}

fetch_package() {
    fetch_from_pinned "/install/packages/$package" "$work/$package" $package_kib_max
    [ "$(sha256sum <"$work/$package" | cut -c1-64)" = "$sha256" ] || refuse 4 install_package_damaged \
        "$package has another digest than the control plane's checksum file" 'run the same command again; if the error remains, report it to the operator'
}

# place FILE TARGET MODE: installs a file atomically.
place() {
    half=$2.new
    { cp "$1" "$half" && chmod "$3" "$half" && mv -f "$half" "$2"; } 2>"$work/stderr" || {
        rm -f "$half" 2>/dev/null
        explain_failure "$2 cannot be written"
    }
    half=
}

# Restarts the agent if its program was replaced and the package did not restart it, for example by a Debian policy.
restart_replaced() {
    [ -z "$root" ] || return 0
    pid=$(systemctl show -p MainPID $unit)
    pid=${pid#MainPID=}
    case ${pid:-0}:$(readlink "/proc/${pid:-0}/exe" 2>/dev/null) in
        0:*) ;;
        *' (deleted)') systemctl restart $unit >"$work/stderr" 2>&1 || not_started ;;
    esac
}

install_package() {
    case $kind in
        deb) dpkg --install "$work/$package" </dev/null 9<&- >"$work/stderr" 2>&1 || explain_failure "dpkg did not install $package" ;;
        *)
            mkdir "$work/files"
            tar -xzf "$work/$package" -C "$work/files" 2>"$work/stderr" || explain_failure "$package cannot be unpacked"
            unpacked=$work/files/${package%.tar.gz}
            mkdir -p "$programs" "$share" "$units" 2>"$work/stderr" || explain_failure 'the folders cannot be created'
            place "$unpacked/share/gpuaas-agent/install.sh" "$share/install.sh" 755
            place "$unpacked/lib/systemd/system/$unit" "$units/$unit" 644
            place "$unpacked/bin/gpuaas-agent" "$programs/gpuaas-agent" 755
            ! has restorecon || restorecon "$programs/gpuaas-agent" "$units/$unit" >/dev/null 2>&1
            [ -n "$root" ] || systemctl daemon-reload
            ;;
    esac
    # Not for an image: it may run on another kind of machine.
    [ -n "$root" ] || "$program" --version </dev/null >"$work/stderr" 2>&1 || explain_failure "$program does not run on this machine"
    restart_replaced
    { mkdir -p "$state" && chmod 700 "$state" && echo "$sha256" >"$state/package"; } 2>"$work/stderr" || explain_failure "$state is not writable"
}

# --------------------------------------------------------------------------------------------------------------------------- the node

# A machine that is already another node keeps its agent: that node's control plane chose the version.
must_be_this_node() {
    { [ -z "$root" ] && [ -e "$state/identity.json" ]; } || return 0
    for known in /usr/bin/gpuaas-agent "$programs/gpuaas-agent"; do
        [ -x "$known" ] || continue
        is=$("$known" status </dev/null 2>/dev/null)
        of=$(printf '%s\n' "$is" | sed -n 's/^node //p')
        [ -z "$of" ] || [ "$of" = "$node" ] || refuse 5 install_already_enrolled \
            "this machine is node $(printf '%s\n' "$is" | sed -n 's/^name //p') of $(printf '%s\n' "$is" | sed -n 's/^url //p')" \
            'to enroll it as another node, remove the agent first: install.sh --uninstall'
    done
}

# Sets outcome; the agent prints its own errors.
enroll() {
    half=$state/enroll
    (umask 077 && printf '%s\n' "$string" >"$state/enroll") 2>"$work/stderr" || explain_failure "$state is not writable"
    outcome=$("$program" enroll </dev/null 9<&-)
    ended=$?
    rm -f "$state/enroll"
    half=
    [ $ended = 0 ] || exit $ended
}

# Returns when the agent has reported to systemd that it is connected, or that it keeps trying.
start() {
    systemctl enable $unit >"$work/stderr" 2>&1 || not_started
    case $1:$(systemctl is-active $unit) in
        changed:*) systemctl restart $unit >"$work/stderr" 2>&1 || not_started ;;
        same:active) ;;
        *) systemctl start $unit >"$work/stderr" 2>&1 || not_started ;;
    esac
    status=$(systemctl show -p StatusText $unit)
    status=${status#StatusText=}
    case $status in
        'connected to '*) ;;
        *) refuse 7 install_not_connected "the node is enrolled, but its channel is not connected: ${status:-the agent reports no status}" \
            'let this machine reach the port 7444 of the control plane; the agent keeps trying' ;;
    esac
}

not_started() {
    last=$(journalctl -u $unit -n 2 -o cat --no-pager 2>/dev/null | tr '\n' ' ')
    refuse 1 install_unit_failed "$unit did not start: ${last:-$(tail -n 1 "$work/stderr")}" "see journalctl -u $unit"
}

bring_in() {
    must_have_systemd
    must_have_tools
    read_string
    take_turn
    must_be_this_node
    must_not_be_masked
    make_work
    know_machine
    take_authority
    choose_package
    package_was=same
    if ! is_installed; then
        must_take_files
        fetch_package
        install_package
        package_was=changed
        say "installed $package"
    fi
    if [ -n "$root" ]; then
        mkdir -p "$units/multi-user.target.wants" && ln -sf "../$unit" "$units/multi-user.target.wants/$unit"
        say "the agent is in $root: nothing was started, and the enrollment string was not used"
        return 0
    fi
    enroll
    # The agent of an enrolled node was restarted when its program was replaced.
    case $outcome in
        'already enrolled '*) start same ;;
        *) start changed ;;
    esac
    case $package_was:$outcome in
        same:'already enrolled '*) say "nothing to do: $outcome, by $package; $status" ;;
        *) say "$outcome"; say "$status" ;;
    esac
}

# --------------------------------------------------------------------------------------------------------------------------- removing

# Files that `gpuaas node fix` creates on a machine. The package's postrm has the same list.
remove_fixes() {
    # FIXES BEGIN
    for fix in \
        /etc/sysctl.d/60-gpuaas-inotify.conf \
        /etc/sysctl.d/60-gpuaas-forwarding.conf \
        /etc/modules-load.d/60-gpuaas.conf
    do
        rm -f "$root$fix"
    done
    # FIXES END
}

# Refuses the removal while an RKE2 unit is active, starts or stops, or its uninstall script is here: pods may run without the unit.
must_have_no_workload() {
    { [ -z "$root" ] && has systemctl; } || return 0
    present=
    for of_workload in rke2-server.service rke2-agent.service; do
        case $(systemctl is-active $of_workload 2>/dev/null) in inactive | failed | unknown | '') ;; *) present="$of_workload runs" ;; esac
    done
    [ ! -e /usr/local/bin/rke2-uninstall.sh ] || present=${present:-'/usr/local/bin/rke2-uninstall.sh is here'}
    [ -z "$present" ] || refuse 5 install_workload_present "$present: a workload of the platform is on this machine" \
        'decommission it first (gpuaas workload decommission NAME), or leave it behind: --uninstall --force'
}

remove() {
    [ "${1-}" = --force ] || must_have_no_workload
    take_turn
    make_work
    was_there=
    known=
    for program in /usr/bin/gpuaas-agent "$programs/gpuaas-agent"; do
        [ -x "$program" ] || continue
        was_there=yes
        [ -n "$root" ] || known=$("$program" status 2>/dev/null)
    done
    [ ! -e "$state" ] || was_there=yes
    # Some ways of removal do not stop the agent, and a running agent writes its state again.
    ran=
    if [ -z "$root" ] && has systemctl; then
        systemctl is-active --quiet $unit 2>/dev/null && ran=yes
        systemctl stop $unit >/dev/null 2>&1
    fi
    if [ -z "$root" ] && has dpkg-query && dpkg-query -W gpuaas-agent >/dev/null 2>&1; then
        was_there=yes
        dpkg --purge gpuaas-agent </dev/null 9<&- >"$work/stderr" 2>&1 || {
            # The agent that is still installed keeps running.
            [ -z "$ran" ] || systemctl start $unit >/dev/null 2>&1
            explain_failure 'dpkg did not remove gpuaas-agent'
        }
    fi
    if [ -f "$units/$unit" ]; then
        was_there=yes
        [ -n "$root" ] || systemctl disable --now $unit >/dev/null 2>&1
    fi
    # Includes files of an installation that was killed halfway.
    rm -f "$units/$unit.new" "$programs/gpuaas-agent.new" "$programs/.gpuaas-install" "$units/.gpuaas-install" \
        "$root/usr/bin/.gpuaas-install" "$root/var/lib/.gpuaas-install"
    rm -rf "$units/multi-user.target.wants/$unit" "${units:?}/$unit" "$programs/gpuaas-agent" "$share" "$state" \
        2>"$work/stderr" || explain_failure 'not everything could be removed'
    remove_fixes
    if [ -z "$root" ] && has systemctl; then
        systemctl daemon-reload
        systemctl reset-failed $unit >/dev/null 2>&1
    fi
    [ -n "$was_there" ] || { say 'nothing to do: there is no agent here'; return 0; }
    say 'removed the agent, its unit and its state'
    of() { printf '%s\n' "$known" | sed -n "s/^$1 //p"; }
    [ -z "$known" ] || say "The control plane at $(of url) still knows node $(of name) ($(of node)) and shows it as unreachable.
Its operator releases its allocation, if it has one (gpuaas allocation list), and before the machine comes back resets it:
  gpuaas node reset $(of name) --force --reason TEXT"
}

main() {
    what=bring_in
    force=
    for argument in "$@"; do
        case $argument in
            --uninstall) what=remove ;;
            --force) force=--force ;;
            *)
                say "usage: GPUAAS_ENROLL=gpuaas1.… sh install.sh, or sh install.sh --uninstall [--force]" >&2
                exit 2
                ;;
        esac
    done
    must_be_root
    # A root shell without login (su) lacks root's PATH, which dpkg needs.
    [ -n "$root" ] || PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    $what $force
}

main "$@"
}
