/* A client of MDP/0.1 on libzmq with CURVE: curve_client URL PUBLIC SECRET SERVER SERVICE BODY prints the reply. */
#include <stdio.h>
#include <string.h>
#include <zmq.h>

int main(int count, char **words)
{
    if (count != 7)
        return 2;
    void *socket = zmq_socket(zmq_ctx_new(), ZMQ_REQ);
    int wait = 20000;
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait, sizeof wait);
    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, words[2], 40);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, words[3], 40);
    zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, words[4], 40);
    if (zmq_connect(socket, words[1]))
        return 3;
    zmq_send(socket, "MDPC01", 6, ZMQ_SNDMORE);
    zmq_send(socket, words[5], strlen(words[5]), ZMQ_SNDMORE);
    zmq_send(socket, words[6], strlen(words[6]), 0);
    char frame[256];
    int size = 0;
    for (int i = 0; i < 3; i++)
        if ((size = zmq_recv(socket, frame, sizeof frame, 0)) < 0)
            return 4;
    printf("%.*s\n", size, frame);
    return 0;
}
