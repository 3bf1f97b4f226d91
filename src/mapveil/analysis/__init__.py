"""Questions asked of maps and reports: who is near, who goes where, which way is free."""
