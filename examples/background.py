"""Start a program in the background, talk to it, follow its output, end it.

python examples/background.py
"""

from talon_sandbox import Sandbox

ECHO = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    print("you said", line.strip(), flush=True)
print("bye")
"""


def main() -> None:
    with Sandbox.create(ttl="10m") as sb:
        sb.fs.write_text("echo.py", ECHO)
        process = sb.spawn("python3 echo.py")
        process.write("hello\n")
        process.write(b"again\n")
        process.close_stdin()
        for chunk in process.logs(follow=True):
            print(f"[{chunk.stream}] {chunk}", end="")
        print(f"exit code {process.wait(timeout='30s').exit_code}")

        sleeper = sb.spawn(["sleep", "1000"])
        print("running:", [item.id for item in sb.processes() if item.info.state == "running"] == [sleeper.id])
        sleeper.kill()
        print("ended as", sleeper.wait(timeout="30s").state)


if __name__ == "__main__":
    main()
