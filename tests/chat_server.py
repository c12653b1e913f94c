"""A server of OpenAI's protocol on this machine, with the errors that real ones have and rules in place of a model."""
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def marks(reference, translation):
    "Strength and fluency by the words in common and by the length."
    first, second = (set(side.lower().strip('.').split()) for side in (reference, translation))
    same = len(first & second) / max(len(first | second), 1)
    return dict(strength=1 + (same > .2) + (same > .6), fluency=1 + len(translation) % 3)


def answer(text):
    "What the server says to the last turn of a conversation."
    _, is_pair, pair = text.rpartition('Reference: ')
    if not is_pair: return 'In other words: ' + text.rpartition('\n\n')[2]
    return json.dumps(marks(*pair.split('\nTranslation: ')))


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_): pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        text, server = asked['messages'][-1]['content'], self.server
        with server.lock:
            server.requests.append((time.monotonic(), text, self.headers['Authorization']))
            is_probe = asked.get('max_tokens') == 1
            fault = server.faults.pop(0) if server.faults and not is_probe else ''
        form = asked.get('response_format', {}).get('type')
        if is_probe and form and form not in server.forms: fault = '422'
        time.sleep(server.pause)
        getattr(self, f'send_{fault or "answer"}')(text)
        if not fault and not is_probe: server.answered.append(text)

    def send(self, status, body, **headers):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in ({'Content-Type': 'application/json', 'Content-Length': len(data)} | headers).items():
            self.send_header(name.replace('_', '-'), str(value))
        self.end_headers()
        self.wfile.write(data)

    def completion(self, finish='stop', **message):
        choice = dict(index=0, finish_reason=finish, message=dict(role='assistant') | message)
        return dict(id='1', object='chat.completion', created=0, model='rule', choices=[choice],
                    usage=dict(prompt_tokens=9, completion_tokens=3, total_tokens=12), system_fingerprint='fp_rule')

    def send_answer(self, text): self.send(200, self.completion(content=answer(text)))
    def send_429(self, _): self.send(429, dict(error=dict(message='slow down')), Retry_After=1)
    def send_500(self, _): self.send(500, dict(error=dict(message='no memory')))
    def send_422(self, _): self.send(422, dict(error=dict(message='unknown form')))
    def send_401(self, _): self.send(401, dict(error=dict(message=f"wrong key {self.headers['Authorization']}")))
    def send_filter(self, _): self.send(400, dict(error=dict(message='content policy', code='content_filter')))
    def send_page(self, _): self.send(200, '<html>Bad gateway</html>', Content_Type='text/html')
    def send_half(self, _): self.send(200, '{"choices": [{"mess')
    def send_empty(self, _): self.send(200, dict(choices=[]))
    def send_chatter(self, _): self.send(200, self.completion(content='What a nice pair!'))
    def send_long(self, _): self.send(200, self.completion('length', content='I think that the'))
    def send_refusal(self, _): self.send(200, self.completion(content=None, refusal='I cannot judge that.'))

    def send_cut(self, text):
        "The connection ends in the middle of the answer."
        body = json.dumps(self.completion(content=answer(text)))
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body[:30].encode())
        self.close_connection = True


class ChatServer(ThreadingHTTPServer):
    "Answers until it is closed; `faults` names what the next requests get in place of an answer."
    daemon_threads = True

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.lock, self.requests, self.answered, self.faults, self.pause = threading.Lock(), [], [], [], 0.
        self.forms = ('json_schema',)
        self.url = f'http://127.0.0.1:{self.server_port}/v1'
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_): pass  # a client that was killed

    @property
    def asked(self): return [text for _, text, _ in self.requests if text != 'Hello']
