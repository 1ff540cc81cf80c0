"""What each shell needs to ask `agentrun __complete`. The words are all found there; a shell only shows them."""

from __future__ import annotations

from enum import StrEnum


class Shell(StrEnum):
    """The shells that can be told how to complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


# Bash splits a word at the characters of COMP_WORDBREAKS, which has =, : and @ in it, and replaces only what stands
# after the last of them; an @ it replaces too. Its own list of words is split there as well: the line is read instead.
_BASH = r"""
_agentrun() {
    local line=${COMP_LINE:0:COMP_POINT} kind reply breaks prefix=
    local -a words=()
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    local current=${words[${#words[@]}-1]}
    breaks=${COMP_WORDBREAKS//[^=:]/}
    [[ -n $breaks ]] && prefix=${current%"${current##*["$breaks"]}"}
    COMPREPLY=()
    {
        IFS= read -r kind
        while IFS=$'\t' read -r reply _; do
            COMPREPLY+=("${reply#"$prefix"}")
        done
    } < <("${1/#\~/$HOME}" __complete "${words[@]:1}" 2>/dev/null)
    [[ $kind == files ]] && compopt -o default 2>/dev/null
    return 0
}
complete -F _agentrun agentrun
"""

_ZSH = r"""
#compdef agentrun
_agentrun() {
    local kind reply about
    local -a replies
    {
        IFS= read -r kind
        while IFS=$'\t' read -r reply about; do
            replies+=("${reply//:/\\:}${about:+:$about}")
        done
    } < <("${(Q)words[1]}" __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)
    if [[ $kind == files ]]; then
        _files
    else
        _describe -V agentrun replies
    fi
}
if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
    _agentrun "$@"
else
    compdef _agentrun agentrun
fi
"""

_FISH = r"""
function __agentrun_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l replies ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    if test "$replies[1]" = files
        __fish_complete_path "$current"
    else
        printf '%s\n' $replies[2..-1]
    end
end
complete -c agentrun -k -f -a '(__agentrun_complete)'
"""

SCRIPTS = {Shell.BASH: _BASH, Shell.ZSH: _ZSH, Shell.FISH: _FISH}


def script(shell: Shell) -> str:
    """What the shell has to read."""
    return SCRIPTS[shell].lstrip("\n")
