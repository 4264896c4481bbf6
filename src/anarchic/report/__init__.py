"""What is shown of runs: tables, pictures, turnout, holdings, and the race of the demo."""
