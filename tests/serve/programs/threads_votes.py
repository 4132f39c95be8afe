"""Plain Python whose threads race with the same words, and are told apart only afterwards."""

import json
import os
import random
import sys
import threading
import time
import urllib.request


def ask(*texts):
    said = [{"role": "assistant" if k % 2 else "user", "content": text} for k, text in enumerate(texts)]
    body = json.dumps({"model": "m", "messages": said}).encode()
    address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    asked = urllib.request.Request(address, body, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"]


found = {}


def voter(seat):
    time.sleep(random.random() / 20)
    vote = ask(sys.argv[1])
    found[seat] = f"{vote}, because {ask(sys.argv[1], vote, f'Seat {seat}: why?')}"


threads = [threading.Thread(target=voter, args=(seat,)) for seat in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
votes = [found[seat] for seat in sorted(found)]
print(*votes, ask("The votes by seat:\n" + "\n".join(votes)), sep="\n")
