# Sourced by what unpacks Debian packages without installing them: apt with a view of one suite for one architecture.
# Nothing of this machine's apt changes. The caller has set `here` and defined `die`; `work` is its temporary folder.
# shellcheck shell=bash

# open_apt SUITE ARCHITECTURE: fetch the package lists
open_apt() {
    local mirror
    mirror=$("$here/../pool/mirror")
    mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial"
    : >"$work/apt/status"
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$1" \
        >"$work/apt/sources.list"
    apt_architecture=$2
    private_apt apt-get update || die "the package lists of $1 can't be fetched from $mirror"
}

# private_apt COMMAND...: apt-get or apt-cache
private_apt() {
    local command=$1
    shift
    "$command" -qq -o "APT::Architecture=$apt_architecture" -o "APT::Architectures::=$apt_architecture" \
        -o "Dir::State=$work/apt" -o "Dir::State::status=$work/apt/status" -o "Dir::Cache=$work/apt" \
        -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Acquire::Check-Valid-Until=false -o Acquire::Retries=5 -o Acquire::Languages=none -o APT::Sandbox::User=root "$@"
}

# download PACKAGE...: these, without what they depend on, into $work/debs
download() {
    mkdir -p "$work/debs"
    (cd "$work/debs" && private_apt apt-get download "$@") || die "$* can't be fetched"
}
