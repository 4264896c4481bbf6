"""How full the disk of a store is."""

from __future__ import annotations

import asyncio

from anarchic.server.watch import Disk


def test_the_disk_of_a_file_is_looked_at(tmp_path):
    path = tmp_path / "run.db"
    path.write_bytes(bytes(5000))
    disk = Disk(path)
    disk.look(path)
    assert disk.used == 5000
    assert disk.free is not None
    path.unlink()
    disk.look(path)  # nothing is known of it, and nothing is raised
    assert (disk.free, disk.used) == (None, None)


def test_a_store_without_a_file_has_no_disk_to_look_at():
    disk = Disk(None)
    asyncio.run(asyncio.wait_for(disk.watch(), 5))  # it returns
    assert (disk.free, disk.used) == (None, None)
