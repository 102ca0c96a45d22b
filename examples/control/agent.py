#!/usr/bin/env python3
"""An agent inside a program asks sonde serve who writes one of its own variables.

    sonde serve --socket /tmp/sonde.sock &
    python3 agent.py /tmp/sonde.sock
"""
import ctypes
import json
import os
import socket
import sys


class Sonde:
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.lines = self.sock.makefile("r", encoding="utf-8")
        self.last = 0
        self.events = []

    def call(self, method, **params):
        self.last += 1
        request = {"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}
        self.sock.sendall(json.dumps(request).encode() + b"\n")
        while True:
            answer = self.read()
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(answer["error"]["message"])
                return answer["result"]
            self.events.append(answer)  # a notification that came in between

    def read(self):
        line = self.lines.readline()
        if not line:
            raise EOFError("sonde serve has ended")
        return json.loads(line)

    def __iter__(self):
        while True:
            yield self.events.pop(0) if self.events else self.read()


def main():
    sonde = Sonde(sys.argv[1])
    variable = ctypes.c_long(0)
    address = ctypes.addressof(variable)
    try:
        probe = sonde.call("add", expr="watch:%#x:w8" % address, pids=[os.getpid()])
    except RuntimeError as error:  # no debug registers here: watch a function of the C library instead
        print("watch:", error)
        probe = sonde.call("add", expr="libc:getenv(name: str)", pids=[os.getpid()])
        libc = ctypes.CDLL(None)
    else:
        libc = None
    sonde.call("stream", id=probe["id"])
    for i in range(3):
        if libc:
            libc.getenv(b"HOME")
        else:
            variable.value = i + 1
    for n, message in enumerate(sonde):
        print(json.dumps(message["params"]))
        if n == 2:
            break
    print(json.dumps(sonde.call("ledger", id=probe["id"])))
    sonde.call("remove", id=probe["id"])


main()
