"""HTTP/2 and HTTP/1.1 to one API server: clients of our own, and aiohttp for streams of HTTP/1.1 and behind a proxy."""
