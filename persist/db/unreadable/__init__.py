"""Rows that persist cannot decode, since another program wrote them: how they are detected, left out and reported."""
