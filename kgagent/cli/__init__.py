"""The command line: parse, call, print, exit; nothing else.

stdout is data, stderr narration, exit codes an interface: 0 ok, 1 the thing asked about failed, 2 usage or configuration,
3 try again, 130 interrupted.
"""

import signal


def main() -> None:
    """The entry point; Ctrl-C while the imports are read ends quietly, `kgagent.cli.main` takes over from there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kgagent.cli.main import main as run

    run()
