"""Processes that start within milliseconds: forked off one that has imported all they need."""

import multiprocessing

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["segue.journal.postgres", "segue.journal.sqlite", "tests.agent.crasher"]
)
