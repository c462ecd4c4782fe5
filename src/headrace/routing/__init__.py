"""Who is asked: the order of candidates, when to ask again, and when to leave a provider alone. Pure, but for Redis."""
