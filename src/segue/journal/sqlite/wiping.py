"""Leaving nothing of what was deleted in a SQLite file.

`secure_delete` overwrites rows. Words stay in two places all the same: in the index of words, which
only notes what is gone until its parts are merged, and in the log, until it is emptied.
"""

import sqlite3

from segue.journal.sqlite.database import Database

# Pages of the index that are merged in one transaction: other writers wait for its end.
_PAGES = 100


async def wipe(db: Database) -> None:
    """Remove what earlier transactions deleted from the index of words and from the log."""
    # A merge that is under way comes first, and then one of all parts. With that it is over, even
    # if others have added new parts meanwhile.
    most = 2 * await db.read(_count_pages) // _PAGES + 2
    for _ in range(most):
        if not await db.write(_merge):
            break
    await db.fold_log()


def _count_pages(db: sqlite3.Connection) -> int:
    (count,) = db.execute("SELECT count(*) FROM messages_words_data").fetchone()
    return int(count)


def _merge(db: sqlite3.Connection) -> bool:
    """Go on with merging all parts of the index into one; False if there is one already."""
    before = db.total_changes
    db.execute("INSERT INTO messages_words (messages_words, rank) VALUES ('merge', ?)", (-_PAGES,))
    return db.total_changes - before > 1
