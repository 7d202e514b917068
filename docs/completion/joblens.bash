# Made by `python -m condor_joblens.cli.reference docs/` from the arguments of joblens.
# bash completes verbs, options and the ids of running jobs by it: bash-completion finds it by its name.

# The ids of your jobs that run, from this machine's queue; else of those on this node.
_joblens_jobs() {
    local found
    found=$(timeout 3 condor_q -constraint 'JobStatus == 2' -format '%d.' ClusterId -format '%d\n' ProcId 2>/dev/null)
    if [ -z "$found" ]; then
        found=$(timeout 3 joblens status --json 2>/dev/null | sed -n 's/.*"JobId": "\([0-9.]*\)".*/\1/p')
    fi
    printf '%s\n' "$found"
}

_joblens() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]}
    local words='' options='' values='' first='' place=0 at
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W 'status top job q history jobs compare watch level control staff hang stacks last ps tail head cat log get env peek node ls kill notify trace ask say progress artifacts flame crash hot policy metrics config plot pool size restart upgrade doctor --help --version' -- "$word")
        return
    fi
    case $verb in
    status) options='--help --json --run-dir -h' values='--run-dir' first='' ;;
    top) options='--by --help --json --run-dir -d -h -n -s' values='--by --run-dir -d -n -s' first='JOB' ;;
    job) options='--before-death --help --json --run-dir --summary --web -h' values='--run-dir' first='JOB' ;;
    q) options='--all --constraint --help --json --owner -h' values='--constraint --owner' first='JOB' ;;
    history) options='--all --constraint --help --json --owner --since -h -n' values='--constraint --owner --since -n' first='JOB' ;;
    jobs) options='--constraint --help --json --owner --since -h' values='--constraint --owner --since' first='' ;;
    compare) options='--help --json --siblings -h' values='' first='JOB' ;;
    watch) options='--help --json --run-dir -h -n' values='--run-dir -n' first='JOB' ;;
    level) options='--clear --cluster --for --help --json --run-dir -h' values='--cluster --for --run-dir' first='JOB' ;;
    control) options='--at-least --at-most --cluster --exactly --executable --expression --for --group --help --json --node --period --reason --socket --user --vo --yes -h' values='--at-least --at-most --cluster --exactly --executable --expression --for --group --node --period --reason --socket --user --vo' first='preview add list end key' ;;
    staff) options='--help --job --json --name --user --verbs -h' values='--job --name --user --verbs' first='' ;;
    hang) options='--all --help --json --kept --run-dir -h' values='--run-dir' first='JOB' ;;
    stacks) options='--help --json --lines --run-dir -h' values='--run-dir' first='JOB' ;;
    last) options='--help --json --run-dir -h' values='--run-dir' first='JOB' ;;
    ps) options='--cluster --help --json --run-dir --via -h' values='--cluster --run-dir --via' first='JOB' ;;
    tail) options='--help --json --run-dir --via -f -h -n' values='--run-dir --via -n' first='JOB' ;;
    head) options='--help --json --run-dir -h -n' values='--run-dir -n' first='JOB' ;;
    cat) options='--help --json --run-dir -h' values='--run-dir' first='JOB' ;;
    log) options='--help --json --run-dir --via -f -h -n' values='--run-dir --via -n' first='JOB' ;;
    get) options='--continue --help --json --run-dir -h -o' values='--run-dir -o' first='JOB' ;;
    env) options='--help --json --run-dir -h' values='--run-dir' first='JOB' ;;
    peek) options='--every --for --help --json --run-dir -h' values='--every --for --run-dir' first='JOB' ;;
    node) options='--help --json --run-dir -h' values='--run-dir' first='JOB' ;;
    ls) options='--help --json --run-dir --via -h' values='--run-dir --via' first='JOB' ;;
    kill) options='--help --json --run-dir -h -s' values='--run-dir -s' first='JOB' ;;
    notify) options='--help --json --run-dir -h' values='--run-dir' first='JOB' ;;
    trace) options='--follow --for --format --help --json --run-dir --script --series --since --source --timeline --tree --until -h -o' values='--for --format --run-dir --script --series --since --until -o' first='JOB' ;;
    ask) options='--for --help --json --run-dir -h' values='--for --run-dir' first='JOB' ;;
    say) options='--help --json --run-dir -h' values='--run-dir' first='' ;;
    progress) options='--help --json --run-dir -h' values='--run-dir' first='' ;;
    artifacts) options='--help --json --run-dir -h -o' values='--run-dir -o' first='JOB' ;;
    flame) options='--by --compare --format --help --json --lines --off-cpu --process --run-dir --since --thread --until --wall -h -o' values='--by --compare --format --run-dir --since --until -o' first='JOB' ;;
    crash) options='--help --json --run-dir -h' values='--run-dir' first='JOB' ;;
    hot) options='--by --follow --help --json --lines --off-cpu --run-dir --since --total --until --waits --wall -h -n' values='--by --run-dir --since --until -n' first='JOB' ;;
    policy) options='--events --help --history --json --now --policies --strict --triggers --usage -h' values='--events --history --now --policies --triggers --usage' first='check test explain simulate' ;;
    metrics) options='--help --json -h' values='' first='' ;;
    config) options='--help --json -h' values='' first='' ;;
    plot) options='--help --job --json -h -o' values='--job -o' first='' ;;
    pool) options='--constraint --help --json --pool -h' values='--constraint --pool' first='' ;;
    size) options='--cpus --help --json --running-jobs --slots -h' values='--cpus --running-jobs --slots' first='' ;;
    restart) options='--help --json --run-dir -h' values='--run-dir' first='' ;;
    upgrade) options='--help --json -h' values='' first='' ;;
    doctor) options='--bundle --costs --for-pool --help --json --root --run-dir -h' values='--bundle --costs --root --run-dir' first='' ;;
    *) return ;;
    esac
    case "$verb $before" in
    'top -s') words='slot job owner cores memory read write net proc time server jobs requests bytes waiting errors' ;;
    'top --by') words='job server' ;;
    'ps --via') words='ssh' ;;
    'tail --via') words='condor_tail ssh' ;;
    'log --via') words='ssh' ;;
    'ls --via') words='ssh' ;;
    'trace --format') words='perfetto' ;;
    'flame --format') words='svg folded pprof speedscope json' ;;
    'flame --by') words='function library' ;;
    'hot --by') words='function line file' ;;
    esac
    if [ -z "$words" ]; then
        case " $values " in *" $before "*) return 1 ;; esac # a value: a file, say
        for ((at = 2; at < COMP_CWORD; at++)); do
            case " $values " in *" ${COMP_WORDS[at - 1]} "*) continue ;; esac
            case ${COMP_WORDS[at]} in -*) ;; *) place=$((place + 1)) ;; esac
        done
        case $word in
        -*) words=$options ;;
        *)
            [ "$place" -eq 0 ] || return 1
            words=$first
            [ "$first" != JOB ] || words=$(_joblens_jobs)
            ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    [ "${#COMPREPLY[@]}" -gt 0 ]
}

complete -o bashdefault -o default -F _joblens joblens
