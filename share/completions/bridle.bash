# bash completion for bridle; made by 'bridle help --completion bash'

_bridle_files() { mapfile -t COMPREPLY < <(compgen -f -- "$cur"); }
_bridle_dirs() { mapfile -t COMPREPLY < <(compgen -d -- "$cur"); }
_bridle_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }
_bridle_profiles() {
  mapfile -t COMPREPLY < <(compgen -W "run-v1 run-owner-v1 run-nolandlock-v1 workspace-v1 workspace-tmpfs-v1 observer-v1 observer-native-v1" -f -- "$cur")
}
_bridle_policy() {
  mapfile -t COMPREPLY < <(compgen -W "check show why replay diff test hold reload" -f -- "$cur")
}

_bridle() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
  local verb=${COMP_WORDS[1]}
  local verbs="run observe exec plan activate validate connect policy show promote state repl doctor image serve token acp demo selftest bench help"
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    _bridle_words "$verbs --help --version"
    return
  fi
  case $verb in
    run)
      case $prev in
        -C | --dir) _bridle_dirs ;;
        -t | --task) _bridle_files ;;
        -p | --policy) _bridle_files ;;
        --profile) _bridle_profiles ;;
        --image) : ;;
        -a | --adapter) : ;;
        --resume) : ;;
        -m | --model) : ;;
        --config) _bridle_files ;;
        --scenario) _bridle_files ;;
        --timeout) : ;;
        *)
          case $cur in
            -*) _bridle_words "--dir --task --policy --profile --image --adapter --resume --model --config --scenario --timeout --json --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    observe)
      case $prev in
        --schema) _bridle_files ;;
        --input) _bridle_files ;;
        -p | --policy) _bridle_files ;;
        --profile) _bridle_profiles ;;
        -m | --model) : ;;
        --config) _bridle_files ;;
        --scenario) _bridle_files ;;
        --timeout) : ;;
        *)
          case $cur in
            -*) _bridle_words "--schema --input --policy --profile --model --config --scenario --timeout --json --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    exec)
      case $prev in
        -C | --dir) _bridle_dirs ;;
        -p | --policy) _bridle_files ;;
        --profile) _bridle_profiles ;;
        --image) : ;;
        --timeout) : ;;
        *)
          case $cur in
            -*) _bridle_words "--dir --policy --profile --image --timeout --json --help" ;;
            *) _bridle_files ;;
          esac
          ;;
      esac
      ;;
    plan)
      case $prev in
        -C | --dir) _bridle_dirs ;;
        -p | --policy) _bridle_files ;;
        --profile) _bridle_profiles ;;
        --image) : ;;
        --backend) _bridle_words "native bwrap docker" ;;
        *)
          case $cur in
            -*) _bridle_words "--dir --policy --profile --image --backend --json --help" ;;
            *) _bridle_files ;;
          esac
          ;;
      esac
      ;;
    activate)
      case $prev in
        --image) : ;;
        --remove) _bridle_profiles ;;
        *)
          case $cur in
            -*) _bridle_words "--image --list --remove --json --help" ;;
            *) _bridle_profiles ;;
          esac
          ;;
      esac
      ;;
    validate)
      case $prev in
        -C | --dir) _bridle_dirs ;;
        -p | --policy) _bridle_files ;;
        --profile) _bridle_profiles ;;
        --image) : ;;
        *)
          case $cur in
            -*) _bridle_words "--dir --policy --profile --image --json --help" ;;
            *) _bridle_files ;;
          esac
          ;;
      esac
      ;;
    connect)
      case $prev in
        -C | --dir) _bridle_dirs ;;
        -t | --task) : ;;
        -m | --model) : ;;
        --tokens) : ;;
        --calls) : ;;
        -w | --watch) : ;;
        --resume) : ;;
        --token-file) _bridle_files ;;
        --ca-file) _bridle_files ;;
        --cert) _bridle_files ;;
        --key) _bridle_files ;;
        --server-uid) : ;;
        --timeout) : ;;
        *)
          case $cur in
            -*) _bridle_words "--dir --task --model --tokens --calls --list --watch --resume --detach --token-file --ca-file --cert --key --server-uid --timeout --verbose --json --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    policy)
      case $prev in
        -C | --dir) _bridle_dirs ;;
        -p | --policy) _bridle_files ;;
        --profile) _bridle_profiles ;;
        -t | --manifest) _bridle_files ;;
        --shell) : ;;
        --run) : ;;
        --call) : ;;
        --last) : ;;
        --spec) _bridle_files ;;
        --min-coverage) : ;;
        --min-mutation) : ;;
        *)
          case $cur in
            -*) _bridle_words "--dir --policy --profile --manifest --shell --run --call --last --all --strict --spec --min-coverage --min-mutation --serve --json --help" ;;
            *) _bridle_policy ;;
          esac
          ;;
      esac
      ;;
    show)
      case $prev in
        *)
          case $cur in
            -*) _bridle_words "--json --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    promote)
      case $prev in
        -p | --policy) _bridle_files ;;
        --skip) _bridle_files ;;
        *)
          case $cur in
            -*) _bridle_words "--policy --yes --dry-run --git --skip --recover --json --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    state)
      case $prev in
        *)
          case $cur in
            -*) _bridle_words "--expired --all --json --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    repl)
      case $prev in
        -e | --eval) : ;;
        *)
          case $cur in
            -*) _bridle_words "--eval --json --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    doctor)
      case $prev in
        --delegate) : ;;
        *)
          case $cur in
            -*) _bridle_words "--json --delegate --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    image)
      case $prev in
        -n | --name) : ;;
        --format) : ;;
        --suite) : ;;
        --mirror) _bridle_files ;;
        --max-bytes) : ;;
        --max-files) : ;;
        --max-seconds) : ;;
        *)
          case $cur in
            -*) _bridle_words "--name --format --suite --mirror --unpack-only --max-bytes --max-files --max-seconds --json --help" ;;
            *) _bridle_files ;;
          esac
          ;;
      esac
      ;;
    serve)
      case $prev in
        -c | --config) _bridle_files ;;
        -l | --listen) : ;;
        --root) _bridle_dirs ;;
        -p | --policy) _bridle_files ;;
        -m | --model) : ;;
        --scenario) _bridle_files ;;
        *)
          case $cur in
            -*) _bridle_words "--config --listen --root --policy --model --scenario --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    token)
      case $prev in
        -a | --access) _bridle_words "observe answer operate" ;;
        *)
          case $cur in
            -*) _bridle_words "--access --json --help" ;;
            *) _bridle_words "add list remove" ;;
          esac
          ;;
      esac
      ;;
    acp)
      case $prev in
        --connect) : ;;
        --token-file) _bridle_files ;;
        --ca) _bridle_files ;;
        --cert) _bridle_files ;;
        --key) _bridle_files ;;
        --server-uid) : ;;
        --root) _bridle_dirs ;;
        -p | --policy) _bridle_files ;;
        --config) _bridle_files ;;
        --scenario) _bridle_files ;;
        *)
          case $cur in
            -*) _bridle_words "--connect --token-file --ca --cert --key --server-uid --root --policy --config --scenario --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    demo)
      case $prev in
        -p | --policy) _bridle_files ;;
        *)
          case $cur in
            -*) _bridle_words "--policy --keep --json --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    selftest)
      case $prev in
        --class) : ;;
        --only) : ;;
        *)
          case $cur in
            -*) _bridle_words "--attack --class --only --list --verbose --json --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    bench)
      case $prev in
        *)
          case $cur in
            -*) _bridle_words "--json --help" ;;
            *) : ;;
          esac
          ;;
      esac
      ;;
    help)
      case $prev in
        --completion) : ;;
        *)
          case $cur in
            -*) _bridle_words "--completion --help" ;;
            *) _bridle_words "$verbs" ;;
          esac
          ;;
      esac
      ;;
  esac
}
complete -F _bridle bridle ./bridle
