from __future__ import annotations

from anarchic.server.visits import MOST_EACH, MOST_WORKERS, RecentRequests, SeenRequest, with_visits


def pulled(*times):
    return [SeenRequest("pulled", at, 0) for at in times]


def test_a_pushed_update_begins_where_its_worker_pulled():
    found = with_visits([[None, 5.0, 1, 3]], pulled(2.0), 0.0)
    assert found == {"pushed": [[2.0, 5.0, 1, 3]], "lost": [], "refusals": [], "working": [None]}


def test_a_pull_after_the_last_push_is_being_worked_on():
    assert with_visits([[None, 5.0, 1, 3]], pulled(2.0, 6.0), 0.0)["working"] == [6.0]
    assert with_visits([], pulled(6.0), 0.0)["working"] == [6.0]


def test_a_pull_without_an_update_before_the_next_pull_was_lost():
    found = with_visits([[None, 9.0, 0, 1]], pulled(1.0, 4.0, 8.0), 0.0)
    assert found["pushed"] == [[8.0, 9.0, 0, 1]]
    assert found["lost"] == [[1.0, 4.0], [4.0, 8.0]]


def test_a_refused_visit_is_not_lost_and_not_under_way():
    seen = [*pulled(1.0), SeenRequest("refused", 2.0, "not_finite")]
    found = with_visits([], seen, 0.0)
    assert (found["refusals"], found["working"]) == ([[2.0, "not_finite"]], [None])
    assert with_visits([], [*seen, *pulled(3.0)], 0.0)["lost"] == []


def test_what_a_timetable_says_of_a_pull_is_kept():
    assert with_visits([[1.5, 5.0, 1, 3]], pulled(2.0), 0.0)["pushed"] == [[1.5, 5.0, 1, 3]]


def test_memory_is_bounded_in_workers_and_requests():
    visits = RecentRequests()
    for number in range(3 * MOST_WORKERS):
        visits.note(f"w{number}", SeenRequest("pulled", float(number), 0))
    assert visits.of("w0") == []
    for number in range(3 * MOST_EACH):
        visits.note("ann", SeenRequest("pulled", float(number), 0))
    assert len(visits.of("ann")) == MOST_EACH
    assert len(visits._seen) == MOST_WORKERS
