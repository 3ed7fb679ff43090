//! The smallest server and client that a busybox has. Not its wget, which looks up even a number by name, and dies of it
//! where it is linked statically.

use casemate_cluster::{Namespace, Said};

/// Serves one page at port 8080.
pub(crate) const SERVER: &str =
    "mkdir /tmp/www && echo served >/tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www";

/// Asks for the page from a Pod; what the program said.
pub(crate) fn get(namespace: &Namespace, from: &str, address: &str, port: u16) -> Said {
    let script = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 3 {address} {port}");
    namespace.exec(from, &["sh", "-c", &script])
}

/// Whether it was the page.
pub(crate) fn served(said: &Said) -> bool {
    said.out.ends_with("\r\n\r\nserved\n")
}
