"""The one exception for mistakes that a user can mend."""


class UserError(Exception):
    """Bad input, with the remedy in the message; the command line prints it on one line and exits with code 2."""
