from __future__ import annotations

WORDS = ("tune", "--budget", 2, "--rounds", 4, "--batch", 8, "--local-steps", 1)


def test_rules_are_tuned_and_their_rates_shown(anarchic, tmp_path):
    out = tmp_path / "t"
    ranges = ("--range", "server-lr=0.1:10", "--range", "fedasync/rule-options.mixing=0.1:1")
    words = (*WORDS, "--rule", "afa-cd,fedasync", "--new-seed", "7-8", *ranges, "--out", out)
    shown = anarchic(*words)
    assert shown.exit_code == 0, shown.output
    rows = [line.split() for line in shown.stdout.splitlines()[2:4]]
    assert rows[0][0] == "afa-cd"
    assert rows[0][1].startswith("server_lr=")
    assert rows[1][1].startswith("rule_options.mixing=")
    assert anarchic(*words).stdout == shown.stdout
    compared = anarchic("compare", out / "final", "--group-by", "rule")
    assert compared.exit_code == 0, compared.output


def test_what_cannot_be_tuned_is_refused(refused, tmp_path):
    def told(*more):
        return refused(2, *WORDS, *more, "--out", tmp_path)

    assert "Which rules?" in told()
    assert "one value of --batch: to tune it, give --range batch=LOW:HIGH" in refused(
        2, "tune", "--rule", "afa-cd", "--batch", "8,16", "--out", tmp_path
    )
    rule = ("--rule", "afa-cd")
    assert "such as server-lr=0.1:10; got 'server-lr=1'" in told(*rule, "--range", "server-lr=1")
    assert "There is no setting 'rat'" in told(*rule, "--range", "rat=1:2")
    assert "both searched and final" in told(*rule, "--new-seed", "0-1")
    assert not any(tmp_path.iterdir())
