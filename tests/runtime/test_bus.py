import pytest
from segue.testing.world import Stage

pytestmark = pytest.mark.anyio


async def test_x(stage: Stage) -> None:
    """x"""
    async with stage.world() as world:
        t = await world.segue.create_thread("ann")
        await world.say(t.id, "hello")
        assert len(await world.heard(t.id)) == 2
