"""What each domain declares for maintenance: how its tables are adopted, exported and pruned."""
