<?php
// An MDP/0.1 worker over php-zmq (libzmq) that sends exactly the frames that the ZeroMQ Guide's PHP worker sends: its REPLY has no
// empty frame between the client address and the body. Written for these tests; the Guide's own code is not copied.
//
//     php mdp_worker.php URL SERVICE
//
// It answers with the body reversed, frame by frame, and prints what it receives. As the Guide's worker it sends HEARTBEAT only when a
// message of the broker wakes it, so that up to two intervals may pass between two of them.

const INTERVAL = 2.5;  // seconds

[, $url, $service] = $argv;

function say(ZMQSocket $socket, string ...$frames): void
{
    $socket->sendmulti(["", "MDPW01", ...$frames]);
}

function connect(string $url, string $service): ZMQSocket
{
    $socket = new ZMQSocket(new ZMQContext(), ZMQ::SOCKET_DEALER);
    $socket->setSockOpt(ZMQ::SOCKOPT_LINGER, 0);
    $socket->connect($url);
    say($socket, "\x01", $service);
    return $socket;
}

$socket = connect($url, $service);
$next = microtime(true) + INTERVAL;
echo "ready\n";
while (true) {
    $message = $socket->recvMulti();
    [, $header, $command] = $message;
    if ($header !== "MDPW01") {
        fwrite(STDERR, "not MDPW01\n");
        exit(1);
    }
    if ($command === "\x02") {
        // client address, empty frame, body
        $client = $message[3];
        $body = array_slice($message, 5);
        echo "job ", implode("|", $body), "\n";
        say($socket, "\x03", $client, ...array_map('strrev', $body));
    } elseif ($command === "\x05") {
        echo "disconnected\n";
        $socket = connect($url, $service);
    } else {
        echo "heartbeat\n";
    }
    if (microtime(true) > $next) {
        say($socket, "\x04");
        $next = microtime(true) + INTERVAL;
    }
}
