"""HTTP/1.1 and WebSocket, the server's side, without I/O."""
