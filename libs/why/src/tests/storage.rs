use super::check;
