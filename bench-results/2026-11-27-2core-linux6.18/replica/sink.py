# A replica that only reads, so that the primary alone is measured.
import socket, sys, threading, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for line in (b"REPLCONF listening-port 1\r\n", b"REPLCONF capa eof capa psync2\r\n"):
    s.sendall(line)
    s.recv(100)
s.sendall(b"PSYNC ? -1\r\n")
def ack():
    while True:
        time.sleep(1)
        s.sendall(b"REPLCONF ACK 0\r\n")
threading.Thread(target=ack, daemon=True).start()
buf = bytearray(1 << 20)
while s.recv_into(buf):
    time.sleep(0.0005)
