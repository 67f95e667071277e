"""How much is stored of a user: what a deletion would take with it."""

from segue.journal.ports import Journal
from segue.journal.records import Deleted
from segue.journal.tables import MEMORIES, OF_THREAD, THREADS, USERS, Whose, all_rows


async def count_user(journal: Journal, user_id: str) -> Deleted:
    """What `Journal.delete_user` would say at this moment. Nothing is changed."""
    rows = {table.name: 0 for table in (THREADS, *OF_THREAD, MEMORIES, USERS)}
    whose = Whose(user_id=user_id)
    async with journal.snapshot() as stored:
        async for thread in all_rows(stored, THREADS, whose):
            rows[THREADS.name] += 1
            for table in OF_THREAD:
                async for _ in all_rows(stored, table, Whose(thread_id=thread["id"])):
                    rows[table.name] += 1
        for table in (MEMORIES, USERS):
            async for _ in all_rows(stored, table, whose):
                rows[table.name] += 1
    rows["api_keys"] = sum(key.user_id == user_id for key in await journal.list_keys())
    return Deleted(rows)
