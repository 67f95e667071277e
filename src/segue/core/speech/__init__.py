"""Requests that users make in plain words, and machinery in what agents write."""
