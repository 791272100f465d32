"""The packaged command line; the window's engine is the same program under another name."""

from engine.doors.cli.main import main

main()
