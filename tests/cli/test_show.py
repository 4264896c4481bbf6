import pytest

from anarchic.cli.show import number, percent, print_table


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),  # noqa: RUF001
        (3, "3"),
        (2.345, "2.35"),
        (23.45, "23.4"),
        (12345.6, "12,346"),
    ],
)
def test_numbers(value, shown):
    assert number(value) == shown


def test_units_and_percents():
    assert (number(2.0, "s"), percent(0.1234)) == ("2 s", "12.3 %")


def test_a_table_in_a_pipe_is_not_broken_at_80_columns(capsys):
    print_table(["a", "b"], [("x" * 60, "y" * 60)])
    assert f"{'x' * 60}  {'y' * 60}" in capsys.readouterr().out
