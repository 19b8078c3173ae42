#!/bin/sh
# Brings this machine into a GPUaaS control plane as a node, and removes again what that left here.
#
#   curl -fsSk --pinnedpubkey 'sha256//…' https://CONTROL-PLANE/install.sh | GPUAAS_ENROLL=gpuaas1.… sh
#                                          as `gpuaas node register` prints it; run again, it changes nothing, or upgrades the agent
#   sh install.sh --uninstall [--force]    removes the agent and its state; --force also where a workload still runs
#   DESTDIR=/image GPUAAS_ENROLL=… sh install.sh
#                                          lays the agent's files down in an image; starts nothing and enrolls nothing
#
# Nothing is trusted on first use: the enrollment string names the digest of the control plane's authority, and all that is fetched comes
# from who proves itself by that authority, packages besides by their digests. No secret stands in an argument or in the environment of
# another program. The last line alone closes what the first opens: a download that was cut runs nothing.
{
set -fu
LC_ALL=C
DEBIAN_FRONTEND=noninteractive
export LC_ALL DEBIAN_FRONTEND
umask 022
# No other program is told: what is exported under one of these names would be.
unset string json body check
string=${GPUAAS_ENROLL-}
unset GPUAAS_ENROLL

root=${DESTDIR-}
root=${root%/}
unit=gpuaas-agent.service
state=$root/var/lib/gpuaas-agent
# Where an archive goes; packages know better.
programs=$root/usr/local/bin
share=$root/usr/local/share/gpuaas-agent
units=$root/etc/systemd/system
# Longest difference between two clocks, in seconds: the control plane refuses more.
skew_max=300
# Longest answers that are taken, in KiB: of who has not proved himself yet, and of a package.
answer_kib_max=64
package_kib_max=524288
work=

say() { printf '%s\n' "$*"; }

has() { command -v "$1" >/dev/null 2>&1; }

# refuse STATUS CODE WHAT NEXT
refuse() {
    printf 'error: %s (%s)\n  %s\n  see docs/errors/%s.md · exit status %s\n' "$3" "$2" "$4" "$2" "$1" >&2
    exit "$1"
}

# What is being written or redeemed at the moment, and is to be gone however this ends.
half=

clean_up() {
    [ -z "$half" ] || rm -f "$half"
    [ -z "$work" ] || rm -rf "$work"
}

# Sets work, a folder of nobody else's that is gone in the end.
make_work() {
    made=$(mktemp -d "${TMPDIR:-/tmp}/gpuaas-install.XXXXXX" 2>&1) || case $made in
        *'No space left on device'*) refuse 7 disk_full "no temporary folder can be made: $made" 'make room there, or set TMPDIR to where there is room' ;;
        *) refuse 4 install_folder_read_only "no temporary folder can be made: $made" 'set TMPDIR to a folder that can be written' ;;
    esac
    work=$made
    # No authority of this machine counts, and curl takes its folder of them even where it is given a file.
    mkdir "$work/none"
}

# ---------------------------------------------------------------------------------------------------------------- what must be here

must_be_root() {
    [ -z "$root" ] || return 0
    [ "$(id -u)" = 0 ] || refuse 6 install_not_root 'only root installs and removes the agent' \
        'run it as root: … | GPUAAS_ENROLL=… sudo --preserve-env=GPUAAS_ENROLL sh'
}

must_have_systemd() {
    [ -z "$root" ] || return 0
    { [ -d /run/systemd/system ] && has systemctl; } || refuse 4 install_no_systemd \
        'this machine was not booted with systemd, and the agent is a unit of systemd' \
        'bring in a machine that runs systemd: Debian 11, Ubuntu 22.04, RHEL 8 or newer'
}

# Told before the string is used up for an agent that may not start.
must_not_be_masked() {
    [ -z "$root" ] || return 0
    # Debian masks the unit of a package that is removed, keeps that in mind, and takes it back when the package is installed again.
    if [ -e /var/lib/systemd/deb-systemd-helper-masked/$unit ] &&
        [ "$(dpkg-query -W -f '${db:Status-Status}' gpuaas-agent 2>/dev/null)" != installed ]; then
        return 0
    fi
    case $(systemctl is-enabled $unit 2>/dev/null) in
        masked*) refuse 4 install_unit_masked "$unit is masked: somebody forbade it to start" \
            "if it may start: systemctl unmask $unit; then run the same line again" ;;
    esac
}

must_have_tools() {
    if ! has curl; then
        hint='install curl, then run the same line again'
        ! has wget || hint="$hint; wget, which is here, cannot pin a key"
        refuse 4 install_tool_missing 'curl is missing' "$hint"
    fi
    for tool in sha256sum base64 tar gzip mktemp sed tr cut; do
        has "$tool" || refuse 4 install_tool_missing "$tool is missing" 'install it, then run the same line again'
    done
}

# One installation at a time. The lock is on a folder that is there anyway: it leaves nothing behind and ends with whoever holds it. /root comes
# first: root alone opens it, so that nobody else can keep it.
take_turn() {
    has flock || refuse 4 install_tool_missing 'flock is missing' 'install util-linux, then run the same line again'
    [ -z "$root" ] || mkdir -p "$root" 2>/dev/null
    for folder in "${root:-/root}" /run; do
        (exec 9<"$folder") 2>/dev/null || continue
        exec 9<"$folder"
        flock -n 9 2>/dev/null
        # Not every file system has locks.
        case $? in
            0) return ;;
            1) refuse 5 install_busy 'another installation runs on this machine' 'wait for its end, then run the same line again' ;;
        esac
    done
}

# ------------------------------------------------------------------------------------------------------------- the enrollment string

damaged() {
    refuse 4 install_string_damaged 'the enrollment string is damaged: a character was lost or changed' \
        'copy the whole line that gpuaas node register printed, or print a new one: gpuaas node enroll NODE'
}

version_unknown() {
    refuse 4 install_string_version 'the enrollment string is of a format that this script does not know' \
        'fetch the script from the control plane that made the string'
}

# The text of a field of the string.
field() { printf '%s' "$json" | sed -n 's/.*"'"$1"'":"\([^"]*\)".*/\1/p'; }

# Sets string, url, ca_sha256 and the id of the node that it is for.
read_string() {
    string=$(printf '%s' "$string" | tr -d ' \t\r\n')
    case $string in
        '') refuse 4 install_string_missing 'no enrollment string was given' \
            'run the whole line that gpuaas node register prints; the string stands in it as GPUAAS_ENROLL' ;;
        gpuaas1.*.*) ;;
        gpuaas1*) damaged ;;
        gpuaas*) version_unknown ;;
        *) refuse 4 install_string_unknown 'GPUAAS_ENROLL holds no enrollment string: one begins with gpuaas1.' \
            'run the whole line that gpuaas node register prints' ;;
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
    case $url in *[!A-Za-z0-9.:/_\[\]-]* | '' | https://) version_unknown ;; https://*) ;; *) version_unknown ;; esac
    case $ca_sha256 in *[!0-9a-f]*) version_unknown ;; esac
    [ ${#ca_sha256} = 64 ] || version_unknown
}

# ------------------------------------------------------------------------------------------------------------------- the control plane

# fetch PATH FILE KIB-MAX [OPTION…]: sets answered to the HTTP status. Directly, as the agent will dial; curl's own settings do not count.
fetch() {
    path=$1 file=$2 kib_max=$3
    shift 3
    refused=0
    while ask_once "$@" && [ "$answered" = 429 ] && [ "$refused" -lt "$refused_max" ]; do
        # Too many machines fetch at once.
        refused=$((refused + 1))
        sleep 5
    done
    [ "$answered" = 200 ] || not_answered "$file"
}

# Ten minutes' worth, as long as one download may take.
refused_max=120

# ask_once [OPTION…]: asks for $path once.
ask_once() {
    answered=$(
        exec 2>"$work/said"
        # In half KiB. What writes more is ended, and is not worth a core.
        # shellcheck disable=SC3045 # every sh of such machines has it
        ulimit -c 0
        ulimit -f $((kib_max * 2))
        curl -q --silent --show-error --globoff --proto '=https' --noproxy '*' --connect-timeout 10 --max-time 600 \
            --speed-limit 1 --speed-time 30 "$@" --dump-header "$work/headers" --output "$file" --write-out '%{http_code}' "$url$path"
        # A shell that curl had taken the place of would be ended itself, and say so.
        exit $?
    ) || not_fetched $?
}

# The same, from who proves himself by the authority that the string pins.
fetch_from_pinned() {
    is_pinned=yes
    fetch "$@" --cacert "$work/ca.pem" --capath "$work/none"
}

curl_said() { sed -n 's/^curl: ([0-9]*) //p' "$work/said" | tail -n 1; }

# not_fetched STATUS-OF-CURL
not_fetched() {
    said=$(curl_said)
    case $1 in 6 | 7 | 28) ask_proxy "$1" ;; esac
    again='then run the same line again'
    case $1 in
        6) refuse 7 install_name_unresolved "the control plane's name leads nowhere: $said" \
            "see what resolves names here (/etc/resolv.conf, /etc/hosts), $again" ;;
        7) refuse 7 install_connection_refused "nobody takes connections at $url: $said" \
            "see whether the control plane runs there and whether a firewall lets this machine through, $again" ;;
        28) refuse 8 install_timed_out "$url does not answer in time: $said" \
            "see whether a firewall swallows what this machine sends there, $again" ;;
        35) refuse 7 install_tls_failed "$url does not speak TLS as the control plane does: $said" \
            "see what listens at that port, $again" ;;
        51 | 58 | 60 | 77 | 82 | 83 | 90 | 91) refuse 4 install_tls_untrusted \
            "whoever answers at $url cannot prove to be the control plane of this enrollment string: $said" \
            'see whether something between here and there ends TLS: agents take no stand-in for the control plane' ;;
        18 | 52 | 55 | 56 | 92 | 95) refuse 7 install_connection_broken "the connection to $url broke: $said" "run the same line again" ;;
        23) refuse 7 disk_full "a download cannot be written to $work: $said" "make room there, or set TMPDIR to where there is room, $again" ;;
        153) refuse 1 install_download_failed "whoever answers at $url sends more than a control plane does" \
            "see whether that is the control plane, $again" ;;
        *) refuse 1 install_download_failed "nothing could be fetched from $url: curl ended with $1: $said" "see man curl for $1, $again" ;;
    esac
}

# ask_proxy STATUS-OF-CURL: where directly nothing goes and a proxy is set, tells what the proxy says; returns where it says nothing new.
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
    # It may hold a password: curl reads it from here, and people are shown it without.
    shown=$(printf '%s' "$proxy" | sed 's#^\([a-z0-9]*://\)\{0,1\}.*@#\1#')
    heard=$(printf '%s' "$proxy" | sed 's#["\\]#\\&#g; s#.*#proxy = "&"#' | curl -q --silent --show-error --globoff --insecure --config - --connect-timeout 10 \
        --max-time 20 --output /dev/null --write-out '%{http_connect}' "$url/livez" 2>"$work/proxy-said")
    ended=$?
    case $ended:$heard in
        0:*) refuse 7 install_proxy_only "$url is reached through the proxy $shown alone, and agents dial without one" \
            'let this machine reach the ports 7443 and 7444 of the control plane directly' ;;
        *:000 | *:200 | *:) ;;
        *) refuse 7 install_proxy_refused "$url is not reached directly, and the proxy $shown answers $heard" \
            'let this machine reach the ports 7443 and 7444 of the control plane directly: agents use no proxy' ;;
    esac
    words=$(sed -n 's/^curl: ([0-9]*) //p' "$work/proxy-said" | tail -n 1)
    # It repeats what it does not understand, with the password in it.
    case $words in *@*) words="curl ended with $ended" ;; esac
    case $ended in
        5 | 7 | 28 | 97) refuse 7 install_proxy_unreachable \
            "$url is not reached directly, and the proxy $shown is not reached either: $words" \
            'let this machine reach the ports 7443 and 7444 of the control plane directly: agents use no proxy' ;;
    esac
}

# not_answered FILE: whoever answers said no; the control plane in its own words, and nobody's words before he has proved himself.
not_answered() {
    json=$(tr -d '\000-\037\177' <"$1" 2>/dev/null | cut -c1-4096)
    code=
    [ -z "$is_pinned" ] || code=$(field code)
    case $answered in 404) status=3 ;; 502 | 503 | 507) status=7 ;; 408 | 504) status=8 ;; *) status=1 ;; esac
    case $code in
        '' | *[!a-z_]*) refuse 1 install_download_failed "$url$path answered HTTP $answered" \
            'see whether that is the control plane, then run the same line again' ;;
        *) refuse $status "$code" "$(field detail)" "$(field next)" ;;
    esac
}

# Seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT`; nothing where it is no such date.
epoch_of() {
    # shellcheck disable=SC2086 # its words are wanted one by one
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
    # Years that begin in March, as in every calendar sum.
    year=$(($4 - (month <= 2)))
    of_year=$(((153 * ((month + 9) % 12) + 2) / 5 + day - 1))
    days=$((year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719468))
    echo $((days * 86400 + hour * 3600 + minute * 60 + second))
}

# By a clock that is off certificates look expired, or not yet valid: told apart from everything else, and before it.
clocks_must_agree() {
    theirs=$(epoch_of "$(sed -n 's/^[Dd]ate: *//p' "$work/headers" | tail -n 1 | tr -d '\r')")
    [ -n "$theirs" ] || return 0
    off=$(($(date +%s) - theirs)) way='ahead of'
    if [ $off -lt 0 ]; then off=$((-off)) way=behind; fi
    [ $off -le $skew_max ] || refuse 5 clock_skewed \
        "this machine's clock is $off s $way the control plane's, and at most $skew_max s are allowed" \
        "set this machine's clock, for example by NTP, then run the same line again"
}

# Leaves in $work/ca.pem the authority that the string pins, and nothing else.
take_authority() {
    is_pinned=
    fetch "/install/authority.pem?sha256=$ca_sha256" "$work/claimed.pem" $answer_kib_max --insecure
    sed -n '/^-----BEGIN CERTIFICATE-----/,/^-----END CERTIFICATE-----/p' "$work/claimed.pem" | sed '/^-----/d' |
        base64 -d >"$work/ca.der" 2>/dev/null
    [ "$(sha256sum <"$work/ca.der" | cut -c1-64)" = "$ca_sha256" ] || refuse 4 install_authority_foreign \
        "whoever answers at $url is not the control plane that made this enrollment string" \
        'print a new line there (gpuaas node enroll NODE); if it answers so again, somebody stands in between'
    # Written anew from what was checked: a PEM file can hold more than one sees.
    {
        echo '-----BEGIN CERTIFICATE-----'
        base64 <"$work/ca.der"
        echo '-----END CERTIFICATE-----'
    } >"$work/ca.pem"
    clocks_must_agree
}

# ------------------------------------------------------------------------------------------------------------------------- the package

# Sets kind and arch. An agent that came as an archive, in an image for example, stays one: its unit would hide that of a package.
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

# The line of the list that a pattern of names finds, of several the newest version: digest and name.
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

# Sets program; true when this very package is installed whole.
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

# explain_failure WHAT: by what the last program said. Of dpkg, whose last line is a name, what it calls its error.
explain_failure() {
    said=$(grep -e '^dpkg: error' -e ' depends on ' "$work/said" | head -n 2 | tr -s '\n ' ' ')
    said=${said:-$(grep -v '^ *$' "$work/said" | tail -n 1)}
    if grep -q 'No space left on device' "$work/said"; then
        refuse 7 disk_full "$1: $said" 'make room there, then run the same line again'
    elif grep -q -e 'Read-only file system' -e 'Permission denied' -e 'Operation not permitted' "$work/said"; then
        refuse 4 install_folder_read_only "$1: $said" 'make it writable, then run the same line again'
    elif grep -q -e 'locked by another process' -e 'unable to lock' "$work/said"; then
        refuse 5 install_busy "$1: $said" 'wait for the end of what installs packages here, then run the same line again'
    fi
    refuse 1 install_package_refused "$1: $said" 'see what is said, then run the same line again: it goes on where it was'
}

# A folder that cannot take files, or the folder of programs that runs none, is told of before anything is changed.
must_take_files() {
    case $kind in deb) bin=/usr/bin ;; *) bin=$programs ;; esac
    for folder in "$bin" "$units" "$root/var/lib"; do
        probe=$folder/.gpuaas-install
        half=$probe
        # By cat, which says what is wrong where a shell's own printf says "I/O error" of a full disk.
        { mkdir -p "$folder" && printf '#!/bin/sh\nexit 0\n' | cat >"$probe" && chmod 755 "$probe"; } 2>"$work/said" || {
            rm -f "$probe" 2>/dev/null
            explain_failure "$folder takes no files"
        }
        "$probe" >/dev/null 2>&1
        ran=$?
        rm -f "$probe"
        half=
        [ "$folder" != "$bin" ] || [ $ran = 0 ] || refuse 4 install_folder_noexec "nothing can be executed in $folder" \
            'mount it without noexec, then run the same line again'
    done
}

fetch_package() {
    fetch_from_pinned "/install/packages/$package" "$work/$package" $package_kib_max
    [ "$(sha256sum <"$work/$package" | cut -c1-64)" = "$sha256" ] || refuse 4 install_package_damaged \
        "$package is not the file that the control plane's list names" 'run the same line again; if it stays so, tell who runs the control plane'
}

# place FILE TARGET MODE: whole or not at all.
place() {
    half=$2.new
    { cp "$1" "$half" && chmod "$3" "$half" && mv -f "$half" "$2"; } 2>"$work/said" || {
        rm -f "$half" 2>/dev/null
        explain_failure "$2 cannot be written"
    }
    half=
}

# An agent whose program was replaced serves on by the old one, where the package did not start it anew: by a policy of Debian's, for example.
restart_replaced() {
    [ -z "$root" ] || return 0
    pid=$(systemctl show -p MainPID $unit)
    pid=${pid#MainPID=}
    case ${pid:-0}:$(readlink "/proc/${pid:-0}/exe" 2>/dev/null) in
        0:*) ;;
        *' (deleted)') systemctl restart $unit >"$work/said" 2>&1 || not_started ;;
    esac
}

install_package() {
    case $kind in
        deb) dpkg --install "$work/$package" </dev/null 9<&- >"$work/said" 2>&1 || explain_failure "dpkg did not take $package" ;;
        *)
            mkdir "$work/files"
            tar -xzf "$work/$package" -C "$work/files" 2>"$work/said" || explain_failure "$package cannot be unpacked"
            unpacked=$work/files/${package%.tar.gz}
            mkdir -p "$programs" "$share" "$units" 2>"$work/said" || explain_failure 'the folders cannot be made'
            place "$unpacked/share/gpuaas-agent/install.sh" "$share/install.sh" 755
            place "$unpacked/lib/systemd/system/$unit" "$units/$unit" 644
            place "$unpacked/bin/gpuaas-agent" "$programs/gpuaas-agent" 755
            ! has restorecon || restorecon "$programs/gpuaas-agent" "$units/$unit" >/dev/null 2>&1
            [ -n "$root" ] || systemctl daemon-reload
            ;;
    esac
    # Not in an image: its machine may be of another kind.
    [ -n "$root" ] || "$program" --version </dev/null >"$work/said" 2>&1 || explain_failure "$program does not run here"
    restart_replaced
    { mkdir -p "$state" && chmod 700 "$state" && echo "$sha256" >"$state/package"; } 2>"$work/said" || explain_failure "$state takes no files"
}

# --------------------------------------------------------------------------------------------------------------------------- the node

# A machine that is another node already keeps the agent that it has: the control plane of that one chose it.
must_be_this_node() {
    { [ -z "$root" ] && [ -e "$state/identity.json" ]; } || return 0
    for known in /usr/bin/gpuaas-agent "$programs/gpuaas-agent"; do
        [ -x "$known" ] || continue
        is=$("$known" status </dev/null 2>/dev/null)
        of=$(printf '%s\n' "$is" | sed -n 's/^node //p')
        [ -z "$of" ] || [ "$of" = "$node" ] || refuse 5 install_already_enrolled \
            "this machine is node $(printf '%s\n' "$is" | sed -n 's/^name //p') of $(printf '%s\n' "$is" | sed -n 's/^url //p')" \
            'if it is to become another node, remove the agent first: install.sh --uninstall'
    done
}

# Sets outcome; the agent says itself what went wrong.
enroll() {
    half=$state/enroll
    (umask 077 && printf '%s\n' "$string" >"$state/enroll") 2>"$work/said" || explain_failure "$state takes no files"
    outcome=$("$program" enroll </dev/null 9<&-)
    ended=$?
    rm -f "$state/enroll"
    half=
    [ $ended = 0 ] || exit $ended
}

# Returns when systemd was told that the agent is connected, or that it goes on trying.
start() {
    systemctl enable $unit >"$work/said" 2>&1 || not_started
    case $1:$(systemctl is-active $unit) in
        changed:*) systemctl restart $unit >"$work/said" 2>&1 || not_started ;;
        same:active) ;;
        *) systemctl start $unit >"$work/said" 2>&1 || not_started ;;
    esac
    status=$(systemctl show -p StatusText $unit)
    status=${status#StatusText=}
    case $status in
        'connected to '*) ;;
        *) refuse 7 install_not_connected "the node is enrolled and its channel does not stand: ${status:-the agent says nothing}" \
            'let this machine reach the port 7444 of the control plane; the agent goes on trying by itself' ;;
    esac
}

not_started() {
    last=$(journalctl -u $unit -n 2 -o cat --no-pager 2>/dev/null | tr '\n' ' ')
    refuse 1 install_unit_failed "$unit does not start: ${last:-$(tail -n 1 "$work/said")}" "see journalctl -u $unit"
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
        say "laid down in $root: nothing was started, and the string was not used"
        return 0
    fi
    enroll
    # A known node's agent was restarted when its program was replaced.
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

# What `gpuaas node fix` leaves on a machine. The package's postrm has the same list.
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

# Also one that is only starting, or stopped: its pods run on without a unit.
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
    # Not every way of removing stops it, and an agent that runs on writes its state again.
    ran=
    if [ -z "$root" ] && has systemctl; then
        systemctl is-active --quiet $unit 2>/dev/null && ran=yes
        systemctl stop $unit >/dev/null 2>&1
    fi
    if [ -z "$root" ] && has dpkg-query && dpkg-query -W gpuaas-agent >/dev/null 2>&1; then
        was_there=yes
        dpkg --purge gpuaas-agent </dev/null 9<&- >"$work/said" 2>&1 || {
            # What is still here runs on.
            [ -z "$ran" ] || systemctl start $unit >/dev/null 2>&1
            explain_failure 'dpkg did not remove gpuaas-agent'
        }
    fi
    if [ -f "$units/$unit" ]; then
        was_there=yes
        [ -n "$root" ] || systemctl disable --now $unit >/dev/null 2>&1
    fi
    # With what an installation that was killed left half written.
    rm -f "$units/$unit.new" "$programs/gpuaas-agent.new" "$programs/.gpuaas-install" "$units/.gpuaas-install" \
        "$root/usr/bin/.gpuaas-install" "$root/var/lib/.gpuaas-install"
    rm -rf "$units/multi-user.target.wants/$unit" "${units:?}/$unit" "$programs/gpuaas-agent" "$share" "$state" \
        2>"$work/said" || explain_failure 'not everything could be removed'
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
    # A shell that became root without its login has not the programs of root, and dpkg asks for them.
    [ -n "$root" ] || PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    $what $force
}

main "$@"
}
