"""One command line, from its words to its exit code, whatever happens in between."""

from __future__ import annotations

import sys

from agentrun.cli import exit as exits
from agentrun.cli import output, quick
from agentrun.cli.options import Options, split
from agentrun.cli.output import ReaderGone
from agentrun.errors import EXIT_CODES, AgentrunError, ConfigError, UsageError


def run(argv: list[str]) -> int:
    """Runs the command line `argv` (without the program's name) and returns its exit code."""
    options = Options(json="--json" in argv)
    try:
        code = quick.run(argv)
        if code is not None:
            return code
        if argv[:1] == ["__complete"]:
            from agentrun.cli.completing import complete

            return complete(argv[1:])
        options, rest = split(argv)
        return _run(options, rest)
    except AgentrunError as error:
        error.hint = error.hint or _next_step(error, argv)
        return _report(error, options)
    except ReaderGone:
        # Whoever read has read enough; that is no failure of what was done.
        return exits.OK
    except KeyboardInterrupt:
        return exits.of_interrupt()
    except Exception as error:  # noqa: BLE001
        # The last handler: a bug of ours must not look like the user's mistake, and must be reportable.
        from agentrun.commands.doubt import shortage, without_directory

        known = shortage(error) or without_directory(error)
        return _report(known, options) if known else _report_bug(error, options)


# What makes typer answer by itself, with text.
_TELLS = {"-h", "--help", "--version"}


def _run(options: Options, rest: list[str]) -> int:
    if not (options.json and (not rest or _TELLS & {*rest})):
        return _obey(options, rest)
    import contextlib
    import io

    from agentrun.render.json import json_line

    with contextlib.redirect_stdout(io.StringIO()) as told:
        code = _obey(options, rest)
    if told.getvalue():  # nothing, where it was the value of an option
        output.out_bytes(json_line({"text": told.getvalue()}))
    return code


def _obey(options: Options, rest: list[str]) -> int:
    # Before anything is opened that stays open.
    output.reserve_line_descriptor()
    import typer

    from agentrun.cli import help_pages
    from agentrun.cli.chosen import command_for

    try:
        result = command_for(rest)(
            rest or ["--help"], standalone_mode=False, prog_name="agentrun", obj=options, **help_pages.width()
        )
    except typer.Abort:
        return exits.of_interrupt()
    except SystemExit as error:
        raise ReaderGone from error  # typer leaves so when it cannot print its help into a closed pipe
    except OSError:
        output.out_bytes(b"")  # help is printed past `output`: this raises what it should if that was what failed
        raise
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        hint = f"see: {context.command_path if context else 'agentrun'} --help"
        # It lists what may be chosen with a line for each; here a message is one line.
        raise UsageError(error.format_message().replace("\n\t", " "), hint=hint) from error
    if not rest:
        return EXIT_CODES["usage"]  # the help was the answer, but nothing was asked
    return result if isinstance(result, int) else exits.OK


def _next_step(error: AgentrunError, argv: list[str]) -> str | None:
    """Where to read on, for errors that have nothing better to say."""
    if isinstance(error, UsageError):
        from agentrun.cli.words import COMMANDS

        command = next((f" {word}" for word in argv if word in COMMANDS), "")
        return f"see: agentrun{command} --help"
    hint = "how a configuration looks: agentrun config --help; all that can be in it: docs/agents.md of the source"
    return hint if isinstance(error, ConfigError) else None


def _report(error: AgentrunError, options: Options) -> int:
    if options.json:
        from agentrun.render.json import error_doc, json_line

        output.say(json_line(error_doc(error)).decode("utf-8"))
    else:
        from agentrun.render.plain import error_text

        output.say(error_text(error, output.screen_of(sys.stderr, options)))
    return error.exit_code


def _report_bug(error: Exception, options: Options) -> int:
    import traceback

    from agentrun.render.safe import shown

    if not options.json:
        # The words of the error may be anybody's.
        output.say(shown(traceback.format_exc()))
    hint = "this is a bug in agentrun; what was acknowledged is safe in the tree"
    _report(AgentrunError(f"{type(error).__name__}: {error}", hint=hint), options)
    return EXIT_CODES["internal"]
