/* The smallest MDP/0.1 broker there can be on libzmq, in C: a ROUTER, a queue and a list of idle workers, one service, no heartbeats.
 *
 *     cc -O2 -o libzmq_loop libzmq_loop.c -lzmq
 *     ./libzmq_loop tcp://127.0.0.1:PORT [SECRET-KEY]
 *
 * With a secret key, 40 characters of Z85, it is a CURVE server that lets every client in.
 */
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum { FRAMES = 16, IDLE = 65536 };

typedef struct Message {
    zmq_msg_t frame[FRAMES];
    int count;
    struct Message *next;
} Message;

typedef struct {
    char name[16];
    size_t size;
} Worker;

static Worker idle[IDLE];
static unsigned idle_first, idle_end;
static Message *queue_first, *queue_last;

static int receive(void *router, Message *message)
{
    int more = 1;
    message->count = 0;
    message->next = NULL;
    while (more) {
        zmq_msg_t *frame = &message->frame[message->count++];
        zmq_msg_init(frame);
        if (zmq_msg_recv(frame, router, 0) < 0)
            return -1;
        more = zmq_msg_more(frame);
    }
    return 0;
}

static void body(void *router, Message *message, int from)
{
    for (int i = from; i < message->count; i++)
        zmq_msg_send(&message->frame[i], router, i < message->count - 1 ? ZMQ_SNDMORE : 0);
}

static void done(Message *message)
{
    for (int i = 0; i < message->count; i++)
        zmq_msg_close(&message->frame[i]);
    free(message);
}

static void dispatch(void *router, const Worker *worker, Message *request)
{
    zmq_send(router, worker->name, worker->size, ZMQ_SNDMORE);
    zmq_send(router, "", 0, ZMQ_SNDMORE);
    zmq_send(router, "MDPW01", 6, ZMQ_SNDMORE);
    zmq_send(router, "\x02", 1, ZMQ_SNDMORE);
    zmq_msg_send(&request->frame[0], router, ZMQ_SNDMORE);
    zmq_send(router, "", 0, ZMQ_SNDMORE);
    body(router, request, 4);
    done(request);
}

int main(int count, char **words)
{
    void *router = zmq_socket(zmq_ctx_new(), ZMQ_ROUTER);
    int none = 0, yes = 1;
    zmq_setsockopt(router, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(router, ZMQ_RCVHWM, &none, sizeof none);
    if (count > 2) {
        zmq_setsockopt(router, ZMQ_CURVE_SERVER, &yes, sizeof yes);
        if (zmq_setsockopt(router, ZMQ_CURVE_SECRETKEY, words[2], 40))
            return 2;
    }
    if (count < 2 || zmq_bind(router, words[1]))
        return 2;
    for (;;) {
        Message *message = malloc(sizeof *message);
        if (receive(router, message) < 0)
            return 1;
        if (((char *) zmq_msg_data(&message->frame[2]))[3] == 'C') {
            if (idle_first != idle_end) {
                dispatch(router, &idle[idle_first++ % IDLE], message);
            } else {
                if (queue_last)
                    queue_last->next = message;
                else
                    queue_first = message;
                queue_last = message;
            }
            continue;
        }
        char command = *(char *) zmq_msg_data(&message->frame[3]);
        Worker worker;
        worker.size = zmq_msg_size(&message->frame[0]);
        memcpy(worker.name, zmq_msg_data(&message->frame[0]), worker.size);
        if (command == 3) {
            zmq_msg_send(&message->frame[4], router, ZMQ_SNDMORE);
            zmq_send(router, "", 0, ZMQ_SNDMORE);
            zmq_send(router, "MDPC01", 6, ZMQ_SNDMORE);
            zmq_send(router, "echo", 4, ZMQ_SNDMORE);
            body(router, message, 6);
        }
        if (command == 3 || command == 1) {
            if (queue_first) {
                Message *request = queue_first;
                queue_first = request->next;
                if (!queue_first)
                    queue_last = NULL;
                dispatch(router, &worker, request);
            } else {
                idle[idle_end++ % IDLE] = worker;
            }
        }
        done(message);
    }
}
