import socket,ssl,sys,time
host,port,rate,secs=sys.argv[1],int(sys.argv[2]),float(sys.argv[3]),float(sys.argv[4])
c=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); c.check_hostname=False; c.verify_mode=ssl.CERT_NONE
t0=time.time(); n=0; bad=0
while True:
    due=t0+n/rate; now=time.time()
    if now-t0>secs: break
    if now<due: time.sleep(due-now)
    n+=1
    try:
        s=socket.create_connection((host,port),timeout=5); t=c.wrap_socket(s); t.close()
    except Exception as e: bad+=1
print('handshakes',n,'in',round(time.time()-t0,2),'s; failed',bad,flush=True)
