"""`segue chat`: a conversation in the terminal."""
