"""For parents of subagents: handles, shell instructions, joins, retries."""
