"""The page: plain modules that browsers load as they are. `segue.server.routes.web` serves them."""
