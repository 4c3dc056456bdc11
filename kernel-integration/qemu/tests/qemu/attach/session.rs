//! A recorded session of the protocol: a thread that sends what QEMU's stub has sent, if it is asked the same.
//!
//! `kvm.session` is of QEMU 7.2, with the bare kernel on two vCPUs: each packet of the tool after `>`, and of the stub
//! after `<`; `^C` is the byte that stops the machine. KVM could not be run where it was recorded. So the machine ran
//! with TCG, and one packet is not as it was sent: the answer to `info kvm`, which is the one that KVM gives.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

/// Serves one client. The thread's result is the number of packets that it has sent.
pub fn serve(session: &'static str) -> (SocketAddr, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let replay = move || {
        let mut stream = listener.accept().unwrap().0;
        let mut sent = 0;
        for (number, line) in session.lines().enumerate() {
            match line.split_at_checked(2) {
                Some(("> ", request)) => assert_eq!(packet(&mut stream), request, "line {}", number + 1),
                Some(("< ", reply)) => {
                    let sum = reply.bytes().fold(0, u8::wrapping_add);
                    stream.write_all(format!("${reply}#{sum:02x}").as_bytes()).unwrap();
                    sent += 1;
                }
                _ => panic!("line {}: {line}", number + 1),
            }
        }
        sent
    };
    (address, std::thread::spawn(replay))
}

/// The next packet of the tool, without its frame.
fn packet(from: &mut TcpStream) -> String {
    let mut next = || {
        let mut byte = [0];
        from.read_exact(&mut byte).unwrap();
        byte[0]
    };
    loop {
        match next() {
            3 => return "^C".to_owned(),
            b'$' => break,
            _ => {}
        }
    }
    let body: Vec<u8> = std::iter::repeat_with(&mut next).take_while(|byte| *byte != b'#').collect();
    next();
    next();
    String::from_utf8(body).unwrap()
}
