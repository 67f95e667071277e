"""Views for operators and users: reasons, statistics, and stored records."""
