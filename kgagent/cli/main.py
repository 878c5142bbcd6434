"""The command group and the outermost boundary, where errors become a message and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import FrameType

import click

from kgagent import __version__
from kgagent.cli.output import State
from kgagent.errors import KgError, UsageError

# Where each command lives; a command is imported when it is used, so that --help and reads stay quick.
COMMANDS = {
    "init": ("setup", "Make a workspace here: folders, lanes, concept pages."),
    "doctor": ("setup", "Say what this machine can do, and how to get the rest."),
    "demo": ("demo", "Run the main job end to end in a workspace."),
    "ingest": ("sources", "Read sources into the graph: pkg:NAME, folders, files."),
    "sources": ("sources", "List what was ingested: revision, age, counts, what is stale."),
    "forget": ("sources", "Take a source out of the graph."),
    "rebuild": ("sources", "Make graph.db again from raw/ and wiki/."),
    "find": ("read", "Find nodes by name, words or substring."),
    "show": ("read", "Show one node with its relations."),
    "neighbors": ("read", "Walk from a node, or find the path to another."),
    "kernels": ("read", "List Pallas kernels with launch, body, wrapper, tunables."),
    "flags": ("read", "List XLA flags in source: known, unknown or moved."),
    "why": ("read", "Answer a question from the graph, with citations."),
    "profile": ("evidence", "Add profiles to the graph and look at them."),
    "evidence": ("evidence", "Show a run as op, HLO, line, symbol, concept."),
    "flame": ("evidence", "Write a flame graph of a run by source function."),
    "gap": ("evidence", "Set two runs side by side, largest difference first."),
    "kernel": ("evidence", "One screen about a Pallas kernel in a run."),
    "plan": ("research", "Rank the open hypotheses of a lane."),
    "preflight": ("research", "Compile a configuration with the TPU compiler, no TPU needed."),
    "run": ("research", "Run one experiment."),
    "loop": ("research", "Run experiments, best first, within a budget."),
    "resume": ("research", "Go on with what was interrupted."),
    "verify": ("research", "Check receipts, artefacts and arithmetic offline."),
    "wiki": ("sources", "Write the Obsidian mirror of the graph."),
    "completion": ("setup", "Print the shell completion script."),
}


_RESUMED = "kgagent resume goes on with the rest"


class LazyGroup(click.Group):
    """A group whose commands are imported one at a time; their help lines stand in COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _ = COMMANDS[name]
        found: click.Command = getattr(import_module(f"kgagent.cli.{module}"), name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            raise UsageError(f"no command {args[0]!r}", hint=f"did you mean {near[0]!r}?" if near else "kgagent --help lists them")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("-w", "--workspace", type=click.Path(path_type=Path), envvar="KGAGENT_WORKSPACE", help="The workspace folder (default: the nearest one upward).")
@click.version_option(__version__, prog_name="kgagent")
@click.pass_context
def cli(ctx: click.Context, workspace: Path | None) -> None:
    """Make JAX models and Pallas kernels faster on TPUs, and remember why.

    Exit codes: 0 ok, 1 the thing asked about failed, 2 usage or configuration, 3 try again, 130 interrupted.
    """
    ctx.obj = State(workspace)


def main() -> None:
    """The entry point: run, and turn every way of failing into one message and one exit code."""
    # Ended by a service manager or a closed terminal is ended like Ctrl-C: what runs is stopped, what is whole is kept.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) == signal.SIG_DFL:  # nohup ignores a hang-up, and so do we then
            signal.signal(ending, _interrupt)
    sys.exit(guarded(sys.argv[1:]))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def guarded(arguments: list[str]) -> int:
    """Run a command line and return its exit code; nothing but this function catches everything."""
    try:
        result = cli.main(args=arguments, prog_name="kgagent", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        help_ = f"{error.ctx.command_path} --help" if error.ctx else "kgagent --help"
        _tell(UsageError(error.format_message().removesuffix("."), hint=help_))
        return 2
    except click.ClickException as error:
        _tell(UsageError(error.format_message()))
        return 2
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (KeyboardInterrupt, click.Abort):
        resumable = f"; {_RESUMED}" if any(name in arguments for name in ("run", "loop", "resume")) else ""
        click.echo(f"\ninterrupted; what was finished is kept{resumable}", err=True)
        return 130
    except BrokenPipeError:
        # The reader left (`| head`): not a failure of ours; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KgError as error:
        _tell(error)
        return error.exit_code
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        click.echo(f"error: {error.strerror or error}{place}\n  next: check that the disk has space and can be written", err=True)
        return 1
    except Exception as error:  # noqa: BLE001 - the outermost boundary
        if os.environ.get("KGAGENT_DEBUG"):
            traceback.print_exc()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        click.echo(
            f"error: a fault in kgagent: {type(error).__name__}: {error} ({place})\n  next: run it again with KGAGENT_DEBUG=1 and report what it prints",
            err=True,
        )
        return 1


def _tell(error: KgError) -> None:
    """What happened, where, what next; control characters of what was typed or read don't reach the terminal."""
    text = "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in f"error: {error}")
    click.echo(text, err=True)
