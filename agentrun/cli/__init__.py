"""The command line: arguments in, text out, errors to exit codes. Everything else is below."""
