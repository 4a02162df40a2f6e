"""HTTP/1.1 to one API server: a client of our own for requests, and aiohttp for streams and behind a proxy."""
